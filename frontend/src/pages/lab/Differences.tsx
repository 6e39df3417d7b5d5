import { useState } from "react";
import { Link } from "react-router";
import { useComparison } from "../../api/labHooks";
import type { SimulationComparison } from "../../api/types";
import { Loadable, Panel, Skeleton } from "../../components/Panel";
import { duration } from "../../lib/format";
import type { Chosen } from "./CurvesChart";
import css from "./lab.module.css";
import { Name } from "../../components/Name";

type View = "projects" | "users" | "jobs";
const AT_ONCE = 20;

interface Entry {
  name: string;
  number: number | null;
  base: number;
  other: number;
  difference: number;
  jobs: number;
}

function entriesOf(found: SimulationComparison, view: View): Entry[] {
  if (view === "jobs") return found.jobs.map((job) => ({ name: job.number === null ? job.job : `#${job.number}`, number: job.number, base: job.wait_base_s, other: job.wait_other_s, difference: job.difference_s, jobs: 1 }));
  if (view === "users") return found.users.map((user) => ({ name: user.user, number: null, base: user.wait_base_s, other: user.wait_other_s, difference: user.difference_s, jobs: user.jobs }));
  return found.projects.map((project) => ({ name: project.project, number: null, base: project.wait_base_s, other: project.wait_other_s, difference: project.difference_s, jobs: project.jobs }));
}

/** Who would have waited less, and who more. */
export function Differences({ id, chosen, base, other }: { id: string; chosen: Chosen; base: string; other: string }) {
  const [view, setView] = useState<View>("projects");
  const query = useComparison(id, chosen.base, chosen.other);
  if (!chosen.other || chosen.base === chosen.other) return null;
  return (
    <Panel
      title="Winners and losers" meta={`mean wait under ${other} against ${base}`}
      right={<div className="seg small" role="group" aria-label="By">{(["projects", "users", "jobs"] as const).map((one) => <button key={one} type="button" aria-pressed={one === view} onClick={() => setView(one)}>{one[0]?.toUpperCase()}{one.slice(1)}</button>)}</div>}
    >
      <Loadable query={query} what="The comparison" skeleton={<Skeleton height={26} count={4} />}>
        {(found) => <Table key={view} entries={entriesOf(found, view)} view={view} />}
      </Loadable>
    </Panel>
  );
}

function Table({ entries, view }: { entries: Entry[]; view: View }) {
  const [shown, setShown] = useState(AT_ONCE);
  const most = Math.max(...entries.map((entry) => Math.abs(entry.difference)), 1e-9);
  if (entries.length === 0) return <p className="empty">No job finished under both.</p>;
  return (
    <>
      <div className="tw" tabIndex={0}>
        <table className="t">
          <thead><tr><th scope="col">{view === "jobs" ? "Job" : view === "users" ? "User" : "Project"}</th>{view !== "jobs" && <th scope="col" className="ra">Jobs</th>}<th scope="col" className="ra">Wait, base</th><th scope="col" className="ra">Wait, other</th><th scope="col" className="ra">Difference</th><th scope="col" style={{ width: "30%" }}><span className="vh">As a bar: left less, right more</span></th></tr></thead>
          <tbody>
            {entries.slice(0, shown).map((entry) => (
              <tr key={entry.name}>
                <td>{entry.number === null ? <Name>{entry.name}</Name> : <Link to={`/jobs/${entry.number}`}><Name>{entry.name}</Name></Link>}</td>
                {view !== "jobs" && <td className="ra">{entry.jobs}</td>}
                <td className="ra">{duration(entry.base)}</td>
                <td className="ra">{duration(entry.other)}</td>
                <td className="ra">{entry.difference === 0 ? "the same" : `${duration(Math.abs(entry.difference))} ${entry.difference < 0 ? "less" : "more"}`}</td>
                <td><Bar share={entry.difference / most} /></td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {entries.length > shown && <button type="button" className="more" style={{ padding: 8 }} onClick={() => setShown(shown + AT_ONCE)}>More</button>}
    </>
  );
}

/** Around zero: to the left who waits less. */
function Bar({ share }: { share: number }) {
  const width = `${Math.min(100, Math.abs(share) * 100)}%`;
  return (
    <div className={css.side} aria-hidden>
      <div className={css.half} style={{ justifyContent: "flex-end" }}>{share < 0 && <i style={{ width, background: "var(--good)" }} />}</div>
      <div className={css.half}>{share > 0 && <i style={{ width, background: "var(--warn)" }} />}</div>
    </div>
  );
}
