import { useState } from "react";
import { Link } from "react-router";
import { rowsOf } from "../../api/pages";
import { useRounds } from "../../api/roundHooks";
import type { KeptRound } from "../../api/types";
import { More } from "../../components/More";
import { Loadable, Panel, Skeleton } from "../../components/Panel";
import { Text } from "../../components/TextField";
import { dateTime, integer, moment, preciseDuration } from "../../lib/format";
import { TopBar } from "../../shell/TopBar";
import { movesWords } from "./rounds";
import css from "./lab.module.css";

const iso = (local: string) => (local === "" ? undefined : new Date(local).toISOString());

/** Rounds that were kept: each can be opened, and planned again under another policy. */
export default function RoundsPage() {
  const [span, setSpan] = useState({ from: "", to: "" });
  const [moved, setMoved] = useState(true);
  const from = iso(span.from);
  const to = iso(span.to);
  const query = useRounds({ ...(from ? { from_at: from } : {}), ...(to ? { to_at: to } : {}), ...(moved ? { moved: "true" } : {}) });
  return (
    <>
      <TopBar title="Rounds" crumb={<><Link to="/lab">Policy lab</Link><i>/</i>Rounds</>} />
      <div className="page">
        <h1 className="say"><b>Every decision that moved something is kept</b> with what it saw: open one, and plan it again under another policy.</h1>
        <Panel title="Rounds" meta="newest first">
          <div className={css.line} style={{ paddingTop: 12 }}>
            <Text label="From" type="datetime-local" value={span.from} onChange={(value) => setSpan({ ...span, from: value })} />
            <Text label="To" type="datetime-local" value={span.to} onChange={(value) => setSpan({ ...span, to: value })} />
            <label style={{ display: "flex", gap: 6, alignItems: "center", height: 32 }}><input type="checkbox" checked={moved} onChange={(event) => setMoved(event.target.checked)} />Only rounds with moves</label>
          </div>
          <Loadable query={query} what="The list of rounds" skeleton={<Skeleton height={30} count={4} />}>
            {(data) => {
              const rows = rowsOf(data);
              return rows.length === 0 ? <p className="empty">No such round is kept. Rounds that move nothing are kept only now and then.</p> : <Rows rows={rows} />;
            }}
          </Loadable>
          <More query={query} label="Older rounds" />
        </Panel>
      </div>
    </>
  );
}

function Rows({ rows }: { rows: KeptRound[] }) {
  const now = new Date();
  return (
    <div className="tw" tabIndex={0}>
      <table className="t cards">
        <thead><tr><th scope="col">Round</th><th scope="col">At</th><th scope="col">What it did</th><th scope="col">Policy</th><th scope="col" className="ra">Planned in</th></tr></thead>
        <tbody>
          {rows.map((row) => (
            <tr key={row.round}>
              <td className="wide" style={{ fontWeight: 500 }}><Link to={`/lab/rounds/${row.round}`}>Round {integer(row.round)}</Link></td>
              <td data-l="At" title={dateTime(new Date(row.at))}>{moment(new Date(row.at), now)}</td>
              <td data-l="What it did">{movesWords(row.moves)}{row.rejected !== null && <span className="sub">{row.rejected}</span>}</td>
              <td data-l="Policy" className="mono">{row.policy}</td>
              <td data-l="Planned in" className="ra">{preciseDuration(row.seconds)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
