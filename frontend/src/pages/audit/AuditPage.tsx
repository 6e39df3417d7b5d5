import { useSearchParams } from "react-router";
import { useAudit } from "../../api/adminHooks";
import { url } from "../../api/client";
import { rowsOf } from "../../api/pages";
import type { AuditEntry } from "../../api/types";
import { Icon } from "../../components/icons";
import { More } from "../../components/More";
import { Loadable, Panel, SentenceWaits, Skeleton } from "../../components/Panel";
import { SearchField } from "../../components/SearchField";
import { ACTIONS, detailText, momentsOf } from "./audit";
import { useNow } from "../../lib/clock";
import { dateTime, relative } from "../../lib/format";
import { TopBar } from "../../shell/TopBar";
import { sentenceOf } from "../../lib/isolated";

/** What is asked for lives in the address, so that a finding can be linked. */
function useAsked() {
  const [params, setParams] = useSearchParams();
  const of = (name: string) => params.get(name) ?? "";
  const set = (name: string, value: string) => setParams((old) => {
    if (value) old.set(name, value);
    else old.delete(name);
    return old;
  }, { replace: true });
  return { actor: of("actor"), action: of("action"), target: of("target"), from: of("from"), to: of("to"), set, clear: () => setParams({}, { replace: true }) };
}
type Asked = ReturnType<typeof useAsked>;

export default function AuditPage() {
  const asked = useAsked();
  const filter = { actor: asked.actor, action: asked.action, target: asked.target, ...momentsOf(asked.from, asked.to) };
  const narrowed = Object.values(filter).some(Boolean);
  const query = useAudit(filter);
  return (
    <>
      <TopBar title="Audit log" />
      <div className="page">
        {query.data ? <Sentence rows={rowsOf(query.data)} narrowed={narrowed} /> : <SentenceWaits />}
        <Filters asked={asked} />
        <Panel
          title="Entries" meta="newest first"
          right={(["csv", "jsonl"] as const).map((format) => <a key={format} className="btn sm" href={url("audit/export", { ...filter, format })} download><Icon name="download" />{format === "csv" ? "CSV" : "JSON lines"}</a>)}
        >
          <Loadable query={query} what="The audit log" skeleton={<Skeleton height={26} count={8} />}>
            {(data) => rowsOf(data).length === 0 ? <p className="empty">No entry matches. <button type="button" className="btn sm" onClick={asked.clear}>Show all</button></p> : <Table rows={rowsOf(data)} onActor={(email) => asked.set("actor", email)} />}
          </Loadable>
          <More query={query} label="Older entries" />
        </Panel>
      </div>
    </>
  );
}

function Sentence({ rows, narrowed }: { rows: AuditEntry[]; narrowed: boolean }) {
  const now = useNow(30_000);
  const last = rows[0];
  if (!last) return <h1 className="say"><b>Nothing is written down</b> that matches.</h1>;
  return <h1 className="say"><b>The last {narrowed ? "entry that matches" : "entry"} is from {relative(new Date(last.at), now)}</b>: {last.actor ?? "the portal"}, {last.action}{last.target && `, ${last.target}`}. Entries are added only; nobody can change one here.</h1>;
}

function Filters({ asked }: { asked: Asked }) {
  const small = { height: 28, fontSize: 12, width: "auto" };
  const known = ACTIONS.some(([action]) => action === asked.action);
  return (
    <div role="group" aria-label="Filters" style={{ display: "flex", flexWrap: "wrap", gap: 8, alignItems: "center" }}>
      <SearchField label="Who: their whole e-mail" value={asked.actor} onChange={(value) => asked.set("actor", value)} />
      <select className="in" style={small} aria-label="Action" value={asked.action} onChange={(event) => asked.set("action", event.target.value)}>
        {ACTIONS.map(([action, words]) => <option key={action} value={action}>{words}</option>)}
        {!known && <option value={asked.action}>{asked.action}</option>}
      </select>
      <SearchField label="To what: project, person …" value={asked.target} onChange={(value) => asked.set("target", value)} />
      <input className="in" style={small} type="date" aria-label="First day" {...(asked.to ? { max: asked.to } : {})} value={asked.from} onChange={(event) => asked.set("from", event.target.value)} />
      <input className="in" style={small} type="date" aria-label="Last day" {...(asked.from ? { min: asked.from } : {})} value={asked.to} onChange={(event) => asked.set("to", event.target.value)} />
    </div>
  );
}

function Table({ rows, onActor }: { rows: AuditEntry[]; onActor: (email: string) => void }) {
  return (
    <div className="tw" tabIndex={0}>
      <table className="t cards">
        <thead><tr><th scope="col">When</th><th scope="col">Who</th><th scope="col">Action</th><th scope="col">To what</th><th scope="col">More</th><th scope="col">From</th></tr></thead>
        <tbody>
          {rows.map((entry) => (
            <tr key={entry.id} title={sentenceOf([entry.credential, entry.request_id && `request ${entry.request_id}`].filter(Boolean).join(", ")) || undefined}>
              <td className="num whole" data-l="When">{dateTime(new Date(entry.at))}</td>
              <td className="wide">{entry.actor === null ? <span className="sub" style={{ margin: 0 }}>not signed in</span> : <button type="button" className="btn plain sm" style={{ padding: 0 }} title="Only what they did" onClick={() => onActor(entry.actor ?? "")}>{entry.actor}</button>}</td>
              <td className="mono" style={{ fontSize: 12 }} data-l="Action">{entry.action}</td>
              <td className="wide" style={{ fontWeight: 500, whiteSpace: "normal", overflowWrap: "anywhere" }}>{sentenceOf(entry.target)}</td>
              <td className="wide" style={{ fontSize: 12, whiteSpace: "normal", overflowWrap: "anywhere", minWidth: 180 }}>{sentenceOf(detailText(entry.detail as Record<string, unknown>))}</td>
              <td className="num" data-l="From">{entry.address ?? "–"}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
