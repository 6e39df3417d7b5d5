import type { EndedGroupBy } from "../../api/fairnessHooks";
import type { EndedSlowdowns } from "../../api/types";
import { integer } from "../../lib/format";
import { columnLabel } from "../../lib/charts/usagePeriod";
import { times } from "./fairness";

export const ENDED_GROUPS: { key: EndedGroupBy; label: string }[] = [
  { key: "project", label: "Project" }, { key: "user", label: "User" }, { key: "month", label: "Month" },
];

/** From when a job could have started to its end, over the time that it would have taken alone. */
export function EndedTable({ found, by }: { found: EndedSlowdowns; by: EndedGroupBy }) {
  if (found.results.length === 0) return <p className="empty">No job of your projects finished in this time.</p>;
  return (
    <div className="tw" tabIndex={0} role="region" aria-label="Slowdown of finished jobs">
      <table className="t cards">
        <thead>
          <tr>
            <th scope="col">{ENDED_GROUPS.find((group) => group.key === by)?.label}</th><th scope="col" className="ra">Jobs</th>
            <th scope="col" className="ra" title="Half of the jobs had less">Median slowdown</th><th scope="col" className="ra" title="Nine of ten jobs had less">90 %</th><th scope="col" className="ra">Highest</th>
          </tr>
        </thead>
        <tbody>
          {found.results.map((row) => (
            <tr key={row.key} data-row>
              <td className="wide" title={row.key}>{by === "month" ? columnLabel(row.key) : row.label}</td>
              <td className="ra" data-l="Jobs">{integer(row.jobs)}{row.unknown > 0 && <span className="sub" title="It was not known how fast they would have been alone">and {integer(row.unknown)} not known</span>}</td>
              <td className="ra" data-l="Median slowdown">{row.slowdown ? <b>{times(row.slowdown.p50)}</b> : "–"}</td>
              <td className="ra" data-l="90 %">{row.slowdown ? times(row.slowdown.p90) : "–"}</td>
              <td className="ra" data-l="Highest">{row.slowdown ? times(row.slowdown.highest) : "–"}</td>
            </tr>
          ))}
        </tbody>
      </table>
      {found.next !== null && <p className="empty">There are more; choose a project to see those below it.</p>}
    </div>
  );
}
