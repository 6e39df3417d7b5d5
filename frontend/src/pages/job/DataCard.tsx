import type { JobDetail } from "../../api/types";
import { Panel } from "../../components/Panel";
import { count } from "../../lib/format";
import { dataOf } from "../../lib/jobfile/jobFile";
import css from "./job.module.css";
import { Name } from "../../components/Name";

/** What the job reads, and where it comes from. */
export function DataCard({ job }: { job: JobDetail }) {
  const data = dataOf(job.spec.data);
  if (data.length === 0) return null;
  return (
    <Panel title="Data" meta={count(data.length, "entry", "entries")}>
      <ul className={`pb ${css.links}`}>
        {data.map((one) => (
          <li key={one.name}>
            <span><Name>{one.name}</Name>{one.read_only === false && <span className="sub"> written, too</span>}</span>
            <span className="sub ell mono" title={one.url ?? one.path}>{one.url ?? one.path}</span>
          </li>
        ))}
      </ul>
    </Panel>
  );
}
