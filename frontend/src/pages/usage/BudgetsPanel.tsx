import { Link } from "react-router";
import { useBudgets } from "../../api/limitHooks";
import { rowsOf } from "../../api/pages";
import type { Limit } from "../../api/types";
import { More } from "../../components/More";
import { Loadable, Panel, Skeleton } from "../../components/Panel";
import { UsedBar } from "../../components/UsedBar";
import { byUrgency, courseOf } from "./budget";
import { useNow } from "../../lib/clock";
import { moment, percent } from "../../lib/format";
import { shown } from "../../components/LimitsTable";
import { Name } from "../../components/Name";

/** Every limit of money and GPU-hours that binds somebody in the projects shown, and how long it lasts. */
export function BudgetsPanel({ project, currency }: { project: string; currency: string }) {
  const query = useBudgets(project);
  return (
    <Panel title="Budgets" meta="of the present day, week or month; the fullest first" right={<Link className="btn sm" to={project ? `/limits?project=${encodeURIComponent(project)}` : "/limits"}>Limits</Link>}>
      <Loadable query={query} what="The list of budgets" skeleton={<Skeleton height={26} count={2} />}>
        {(data) => rowsOf(data).length === 0 ? <p className="empty">No budget of money or GPU-hours binds {project ? "this project" : "your projects"}.</p> : <Table rows={byUrgency(rowsOf(data))} currency={currency} />}
      </Loadable>
      <More query={query} label="More budgets" />
    </Panel>
  );
}

function Table({ rows, currency }: { rows: Limit[]; currency: string }) {
  const now = useNow(30_000);
  return (
    <div className="tw" tabIndex={0}>
      <table className="t cards">
        <thead><tr><th scope="col">Budget</th><th scope="col">Of</th><th scope="col" className="ra">Used</th><th scope="col" style={{ width: 150 }}>Part used</th><th scope="col">State</th><th scope="col">At this pace</th><th scope="col" className="ra">Period ends</th></tr></thead>
        <tbody>
          {rows.map((row) => (
            <tr key={row.id}>
              <td className="wide" style={{ fontWeight: 500 }}><Name>{row.name}</Name></td>
              <td data-l="Of" className="whole"><Name>{row.level}</Name></td>
              <td className="ra whole" data-l="Used">{shown(row, row.used, currency)}<span className="sub">of {shown(row, row.limit, currency)}</span></td>
              <td className="whole" data-l="Part used"><UsedBar percent={row.used_percent} bad={row.reached} /></td>
              <td data-l="State"><State row={row} /></td>
              <td data-l="At this pace" className="whole"><Course row={row} now={now} /></td>
              <td className="ra" data-l="Period ends">{row.period_ends_at === null ? "–" : moment(new Date(row.period_ends_at), now)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function State({ row }: { row: Limit }) {
  if (row.reached) return <span className="chip bad">used up, {row.hard ? "jobs suspended" : "jobs wait"}</span>;
  return row.used_percent >= 80 ? <span className="chip warn">over 80 %</span> : <span className="chip good">in order</span>;
}

/** A straight line through the use so far; nothing is said of a period that has just begun. */
function Course({ row, now }: { row: Limit; now: Date }) {
  const course = courseOf(row, now);
  switch (course?.kind) {
    case "short": return <b style={{ fontWeight: 500 }}>used up {moment(course.at, now)}</b>;
    case "enough": return <>{percent(course.share)} at its end</>;
    case "early": return <span className="sub" style={{ margin: 0 }}>too early to say</span>;
    default: return <span className="sub" style={{ margin: 0 }}>–</span>;
  }
}
