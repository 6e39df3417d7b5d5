import { Link } from "react-router";
import { useSimulations } from "../../api/labHooks";
import { rowsOf } from "../../api/pages";
import type { Simulation } from "../../api/types";
import { More } from "../../components/More";
import { Loadable, Panel, Skeleton } from "../../components/Panel";
import { count, dateTime, moment } from "../../lib/format";
import { progressWords, STATE_CHIPS, STATE_WORDS, workloadWords } from "./lab";
import { TopBar } from "../../shell/TopBar";
import { OpenRollout } from "../../components/OpenRollout";
import { Progress } from "./Progress";
import { Rollouts } from "./Rollouts";
import { Name } from "../../components/Name";

/** Every simulation that one may see, newest first. */
export default function LabPage({ admin }: { admin: boolean }) {
  const query = useSimulations();
  return (
    <>
      <TopBar title="Policy lab" />
      <div className="page">
        <div style={{ display: "flex", gap: 12, alignItems: "flex-start", flexWrap: "wrap" }}>
          <h1 className="say grow"><b>Run the same jobs under other policies</b> and see who would have waited less or more, before anything is changed.</h1>
          {admin && <Link to="/lab/rounds" className="btn">Rounds</Link>}
          <Link to="/lab/what-if" className="btn">One more node</Link>
          <Link to="/lab/new" className="btn pri">New simulation</Link>
        </div>
        {admin && <OpenRollout />}
        <Panel title="Simulations" meta="newest first">
          <Loadable query={query} what="The list of simulations" skeleton={<Skeleton height={30} count={4} />}>
            {(data) => {
              const rows = rowsOf(data);
              return rows.length === 0
                ? <p className="empty">Nothing was simulated yet. <Link to="/lab/new">Begin</Link> with a synthetic mix or a trace of your own.</p>
                : <Rows rows={rows} />;
            }}
          </Loadable>
          <More query={query} label="Older simulations" />
        </Panel>
        {admin && <Rollouts />}
      </div>
    </>
  );
}

function Rows({ rows }: { rows: Simulation[] }) {
  const now = new Date();
  return (
    <div className="tw" tabIndex={0}>
      <table className="t cards">
        <thead><tr><th scope="col">Simulation</th><th scope="col">State</th><th scope="col">Workload</th><th scope="col" className="ra">Policies</th><th scope="col">By</th><th scope="col" className="ra">Asked for</th></tr></thead>
        <tbody>
          {rows.map((one) => (
            <tr key={one.id}>
              <td className="wide" style={{ fontWeight: 500 }}><Link to={`/lab/${one.id}`}><Name>{one.name || `Simulation ${one.number}`}</Name></Link></td>
              <td data-l="State">
                <span className={STATE_CHIPS[one.state]}>{STATE_WORDS[one.state]}</span>
                {(one.state === "running" || one.state === "queued") && <><Progress simulation={one} /><span className="sub">{progressWords(one)}</span></>}
              </td>
              <td data-l="Workload">{workloadWords(one)}</td>
              <td data-l="Policies" className="ra">{count(new Set(one.trials.filter((trial) => trial.role === "candidate").map((trial) => trial.label)).size, "policy", "policies")}</td>
              <td data-l="By"><Name>{one.created_by}</Name></td>
              <td data-l="Asked for" className="ra" title={dateTime(new Date(one.created_at))}>{moment(new Date(one.created_at), now)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
