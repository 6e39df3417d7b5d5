import { Link } from "react-router";
import type { FairnessSeries, FairnessStanding } from "../../api/types";
import { relative, rowsOf, spreadWords, times, type Row, type Span } from "./fairness";
import { integer, number } from "../../lib/format";
import { Name } from "../../components/Name";

interface Props {
  now: FairnessStanding[];
  before: FairnessSeries[];
  by: "project" | "user";
  span: Span;
  more: boolean;
}

export function StandingTable({ now, before, by, span, more }: Props) {
  const rows = rowsOf(now, before);
  if (rows.length === 0) return <p className="empty">None of your projects has jobs, now or in the {span.label.toLowerCase()}. <Link to="/submit">Submit a job</Link></p>;
  return (
    <div className="tw" tabIndex={0} role="region" aria-label={`Relative throughput and slowdown by ${by}`}>
      <table className="t cards">
        <thead>
          <tr>
            <th scope="col">{by === "user" ? "User" : "Project"}</th>
            <th scope="col" className="ra" title="Jobs that have GPUs">Running</th><th scope="col" className="ra">Waiting</th>
            <th scope="col" className="ra" title="Median, and lowest to highest">Relative throughput now</th><th scope="col" className="ra" title="Mean of 1 / relative throughput">Slowdown now</th>
            <th scope="col" className="ra" title="Mean of all minutes">{span.short}: relative throughput</th><th scope="col" className="ra">Lowest</th><th scope="col" className="ra">Slowdown</th>
          </tr>
        </thead>
        <tbody>{rows.map((row) => <Standing key={row.key} row={row} span={span} />)}</tbody>
      </table>
      {more && <p className="empty">There are more; choose a project to see those below it.</p>}
    </div>
  );
}

function Standing({ row, span }: { row: Row; span: Span }) {
  const then = row.before;
  return (
    <tr data-row>
      <td className="wide" title={row.user?.email ?? row.project.key}>{row.user ? <><Name>{row.user.name}</Name><span className="sub">in <Name>{row.project.name}</Name></span></> : <b><Name>{row.project.name}</Name></b>}</td>
      <td className="ra" data-l="Running">{row.now ? integer(row.now.running) : "0"}</td>
      <td className="ra" data-l="Waiting">{row.now ? integer(row.now.waiting) : "0"}</td>
      <td className="ra whole" data-l="Relative throughput now">{row.now && row.now.running > 0 ? spreadWords(row.now.relative_throughput) : "–"}</td>
      <td className="ra whole" data-l="Slowdown now">{row.now?.slowdown ? times(row.now.slowdown.mean) : "–"}</td>
      <td className="ra whole" data-l={`${span.short}: relative throughput`}>{then ? <Before figures={then} /> : "–"}</td>
      <td className="ra" data-l="Lowest">{then?.relative_throughput ? relative(then.relative_throughput.lowest) : "–"}</td>
      <td className="ra" data-l="Slowdown">{then?.slowdown ? times(then.slowdown.mean) : "–"}</td>
    </tr>
  );
}

/** Over so many jobs on average, which says how much it weighs. */
function Before({ figures }: { figures: FairnessSeries["figures"] }) {
  if (!figures.relative_throughput) return <span className="sub">not known</span>;
  return <span title={`${number(figures.running)} jobs with GPUs on average, over ${integer(figures.samples)} minutes`}>{relative(figures.relative_throughput.mean)}</span>;
}
