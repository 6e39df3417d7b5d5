import { Link } from "react-router";
import type { Usage, UsageGroup, UsageRow } from "../api/types";
import { JobRef } from "./JobRef";
import { integer, money, number, percent, typeName, withUnit } from "../lib/format";
import { columnLabel } from "../lib/charts/usagePeriod";
import { Name } from "./Name";

export function UsageTable({ found, by, email }: { found: Usage; by: UsageGroup; email: string }) {
  const most = Math.max(...found.results.map((row) => row.gpu_hours), 1e-9);
  return (
    <div className="tw" tabIndex={0}>
      <table className="t cards">
        <thead>
          <tr>
            <th scope="col">{by.charAt(0).toUpperCase() + by.slice(1)}</th><th scope="col" className="ra">Jobs</th><th scope="col" className="ra">GPU-hours</th><th scope="col" className="ra" title="Utilisation times occupancy, where it is known">Used</th>
            <th scope="col" style={{ width: "22%" }}><span className="vh">Against the largest</span></th>
            {by !== "type" && <th scope="col">By type</th>}<th scope="col" className="ra">Cost</th>
          </tr>
        </thead>
        <tbody>
          {found.results.map((row) => (
            <tr key={row.key} data-row>
              <td className="wide"><Subject row={row} by={by} email={email} /></td>
              <td className="ra" data-l="Jobs">{integer(row.jobs)}</td>
              <td className="ra" data-l="GPU-hours">{withUnit(number(row.gpu_hours), "h")}</td>
              <td className="ra wide" data-l="Used"><Used row={row} /></td>
              <td className="wide"><span className="bar" aria-hidden style={{ width: "100%" }}><i style={{ width: `${(100 * row.gpu_hours) / most}%`, opacity: row.used_gpu_hours === null ? 1 : 0.4 }} />{row.used_gpu_hours !== null && <i style={{ width: `${(100 * row.used_gpu_hours) / most}%` }} />}</span></td>
              {by !== "type" && <td className="sub wide">{row.by_type.map((part) => `${withUnit(number(part.gpu_hours), "h")} ${typeName(part.type)}`).join(", ")}</td>}
              <td className="ra" data-l="Cost">{money(row.cost, found.currency)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

/** What of the held time the GPUs worked; a part of what was measured, not of what nobody could say. */
function Used({ row }: { row: UsageRow }) {
  if (row.used_gpu_hours === null) return <span className="sub">not known</span>;
  const title = `${withUnit(number(row.measured_gpu_hours), "h")} of ${withUnit(number(row.gpu_hours), "h")} are measured`;
  return <span title={title}>{withUnit(number(row.used_gpu_hours), "h")}<span className="sub">{percent(row.used_gpu_hours / row.measured_gpu_hours)}{row.measured_gpu_hours < row.gpu_hours * 0.995 && ` of ${withUnit(number(row.measured_gpu_hours), "h")}`}</span>{row.emulated && <span className="chip o" style={{ marginLeft: 6 }}>emulated</span>}</span>;
}

function Subject({ row, by, email }: { row: UsageRow; by: UsageGroup; email: string }) {
  if (by === "job") return /^\d+$/.test(row.key) ? <JobRef number={Number(row.key)} name={row.label} /> : <span className="sub">a job that is there no more</span>;
  if (by === "project") return <Link className="link" to={`/usage?project=${row.key}&by=user`} title={row.key}><Name>{row.label}</Name></Link>;
  if (by === "user") return <span title={row.key}><Name>{row.label}</Name>{row.key === email && <span className="sub"> you</span>}</span>;
  return <>{by === "type" ? typeName(row.key) : columnLabel(row.key)}</>;
}
