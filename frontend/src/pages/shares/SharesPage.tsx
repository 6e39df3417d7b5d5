import { usePriorities, useShareHistory, useShares } from "../../api/hooks";
import type { Priorities, Session, Share, Shares } from "../../api/types";
import { JobRef } from "../../components/JobRef";
import { After, Loadable, Panel, SentenceWaits, Skeleton } from "../../components/Panel";
import { count, fixed, integer, number, percent, withUnit } from "../../lib/format";
import { heapOf, partsOfAll, takenOff } from "../../lib/job/priority";
import { TopBar } from "../../shell/TopBar";
import { FIRST_SPAN_DAYS, HistoryPanel } from "./HistoryPanel";
import { PriorityBar, PriorityLegend } from "../../components/PriorityBar";
import { Name } from "../../components/Name";
import { isolated } from "../../lib/isolated";

export default function SharesPage({ session }: { session: Session }) {
  const shares = useShares();
  const priorities = usePriorities();
  const history = useShareHistory(FIRST_SPAN_DAYS);
  return (
    <>
      <TopBar title="Fair share" />
      <div className="page">
        {shares.data ? <Sentence found={shares.data} email={session.user?.email ?? ""} /> : <SentenceWaits />}
        <Panel title="Shares and use" meta={shares.data && (shares.data.form === "classic" ? "classic form" : "Fair Tree")}>
          <Loadable query={shares} what="The tree of shares" skeleton={<Skeleton height={26} count={5} />}>
            {(found) => found.results.length === 0 ? <p className="empty">You are in no project yet.</p> : <Tree rows={found.results} form={found.form} more={found.next !== null} />}
          </Loadable>
        </Panel>
        <After until={[shares, history, priorities]}>
          <HistoryPanel />
          <Panel title="Waiting jobs by priority" meta={priorities.data && count(priorities.data.results.length, "job")}>
            <Loadable query={priorities} what="The list of priorities" skeleton={<Skeleton height={26} count={5} />}>
              {(found) => found.results.length === 0 ? <p className="empty">No job of your projects waits for GPUs.</p> : <Queue found={found} />}
            </Loadable>
          </Panel>
        </After>
      </div>
    </>
  );
}

/** Whether I used more than my share, and what follows from it. */
function Sentence({ found, email }: { found: Shares; email: string }) {
  const mine = found.results.filter((row) => row.is_user && row.user?.email === email);
  const share = mine.reduce((sum, row) => sum + row.norm_shares, 0);
  const used = mine.reduce((sum, row) => sum + row.norm_usage, 0);
  const other = !found.in_force && " Another policy decides at present; this is what multifactor would go by.";
  if (mine.length === 0) return <h1 className="say"><b>You have no share of your own</b>: you are a direct member of none of these projects.{other}</h1>;
  const exactly = Math.abs(used - share) < 0.0005;
  const verdict = used === 0 ? "You have used nothing lately" : exactly ? "You are at your share" : used < share ? "You are below your share" : "You are above your share";
  const follows = exactly && used > 0 ? "so your jobs go after those of people who used less." : used <= share ? "so your jobs go before those of people who used more." : "so jobs of people who used less go before yours until that is forgotten.";
  return <h1 className="say"><b>{verdict}</b>: {percent(used, 1)} of what was used, and {percent(share, 1)} of the cluster is yours, {follows}{other}</h1>;
}

function Tree({ rows, form, more }: { rows: Share[]; form: Shares["form"]; more: boolean }) {
  const ranked = form === "fair_tree";
  return (
    <div className="tw" tabIndex={0}>
      <table className="t cards">
        <thead>
          <tr>
            <th scope="col">Project or user</th><th scope="col" className="ra">Shares</th><th scope="col" className="ra">Of the cluster</th>
            <th scope="col" className="ra">GPU-hours, decayed</th><th scope="col" className="ra">Of all use</th><th scope="col" className="ra">With siblings</th>{ranked && <th scope="col" className="ra" title="Its part of the shares over its part of the use, among those beside it">Level FS</th>}<th scope="col" style={{ width: 150 }}>Fair-share factor</th>
          </tr>
        </thead>
        <tbody>{rows.map((row) => <Row key={`${row.project.key}/${row.user?.email ?? (row.is_user ? "-" : "")}`} row={row} ranked={ranked} />)}</tbody>
      </table>
      {more && <p className="empty">There are more; the command evenkeel shares lists all.</p>}
    </div>
  );
}

function Row({ row, ranked }: { row: Share; ranked: boolean }) {
  const name = row.is_user ? (row.user?.name ?? "deleted user") : row.project.name;
  return (
    <tr>
      <td className="wide" style={{ fontWeight: row.is_user ? 400 : 500 }} title={row.user?.email ?? row.project.key}>
        <span style={{ paddingLeft: 16 * row.level, minWidth: 0 }}><Name>{name}</Name>{row.is_user && <span className="sub only-narrow">in {isolated(row.project.name)}</span>}</span>
      </td>
      <td className="ra" data-l="Shares">{number(row.shares)}</td>
      <td className="ra" data-l="Of the cluster">{percent(row.norm_shares, 1)}</td>
      <td className="ra" data-l="GPU-hours, decayed">{withUnit(fixed(row.usage_gpu_hours, 1), "h")}</td>
      <td className="ra" data-l="Of all use">{percent(row.norm_usage, 1)}</td>
      <td className="ra" data-l="With siblings">{percent(row.effective_usage, 1)}</td>
      {ranked && <td className="ra" data-l="Level FS">{row.level_fs === null ? <span title="Nothing was used">∞</span> : fixed(row.level_fs, 2)}</td>}
      <td data-l="Fair-share factor">{row.factor === null ? <span className="sub" style={{ margin: 0 }} title="Fair Tree ranks users">–</span> : <Factor value={row.factor} />}</td>
    </tr>
  );
}

function Factor({ value }: { value: number }) {
  return (
    <span style={{ display: "grid", gridTemplateColumns: "1fr 44px", gap: 8, alignItems: "center" }}>
      <span className="bar" aria-hidden><i style={{ width: `${100 * value}%` }} /></span>
      <span className="ra">{fixed(value, 3)}</span>
    </span>
  );
}

function Queue({ found }: { found: Priorities }) {
  const most = Math.max(...found.results.map(heapOf), 1);
  return (
    <div className="tw" tabIndex={0}>
      <div className="pb"><PriorityLegend parts={partsOfAll(found.results)} taken={found.results.some((row) => takenOff(row) > 0)} /></div>
      <table className="t cards">
        <thead><tr><th scope="col" className="ra">Place</th><th scope="col">Job</th><th scope="col">Project</th><th scope="col">Owner</th><th scope="col" className="ra">Priority</th><th scope="col" style={{ width: "34%" }}>Made of</th></tr></thead>
        <tbody>
          {found.results.map((row) => (
            <tr key={row.number} data-row>
              <td className="ra" data-l="Place">{integer(row.rank)}</td>
              <td className="wide"><JobRef number={row.number} name={row.name} array={row.array} /></td>
              <td data-l="Project"><Name>{row.project.name}</Name></td>
              <td data-l="Owner">{row.owner ? <Name>{row.owner.name}</Name> : <span className="sub">no project</span>}</td>
              <td className="ra" data-l="Priority">{integer(row.priority)}</td>
              <td data-l="Made of"><PriorityBar made={row} most={most} /></td>
            </tr>
          ))}
        </tbody>
      </table>
      {found.next !== null && <p className="empty">There are more; the command evenkeel prio lists all.</p>}
    </div>
  );
}
