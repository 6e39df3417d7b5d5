import { useRef, useState } from "react";
import { Link } from "react-router";
import type { Session } from "../../api/types";
import { Panel } from "../../components/Panel";
import { count } from "../../lib/format";
import type { JobView } from "../../lib/live/liveContext";
import { RunningRow } from "./RunningRow";

const ACTIVE = new Set(["starting", "running", "rescaling"]);

/** Worst off first; members see their own jobs before the others, and jobs they may not read at the end. */
function ordered(jobs: Map<number, JobView>, session: Session): JobView[] {
  const mine = (job: JobView) => (!session.user?.is_admin && job.full?.owner?.email === session.user?.email ? 0 : 1);
  const share = (job: JobView) => job.full?.relative_throughput ?? Infinity;
  return [...jobs.values()]
    .filter((job) => ACTIVE.has(job.state))
    .sort((a, b) => Number(!a.full) - Number(!b.full) || mine(a) - mine(b) || share(a) - share(b) || a.number - b.number);
}

/** Keeps the order it had while `frozen`: rows never move under the pointer. Newcomers go to the end. */
function useSteadyOrder(jobs: JobView[], frozen: boolean): JobView[] {
  const order = useRef<number[]>([]);
  if (frozen) {
    const rank = new Map(order.current.map((number, i) => [number, i]));
    jobs = [...jobs].sort((a, b) => (rank.get(a.number) ?? Infinity) - (rank.get(b.number) ?? Infinity));
  }
  order.current = jobs.map((job) => job.number);
  return jobs;
}

interface Props {
  jobs: Map<number, JobView>;
  session: Session;
  now: Date;
  mean: number | null;
}

export function RunningTable({ jobs, session, now, mean }: Props) {
  const [hovered, setHovered] = useState(false);
  const rows = useSteadyOrder(ordered(jobs, session), hovered);
  const first = session.user?.is_admin ? "worst off first" : "your own first, then worst off";
  return (
    <Panel title="Running" meta={rows.length > 0 ? `${count(rows.length, "job")}, ${first}` : undefined} right={<span className="sub only-wide">Relative throughput: 1 = as fast as alone on the whole cluster</span>}>
      {rows.length === 0 ? (
        <p className="empty">Nothing runs. <Link to="/submit">Submit a job</Link></p>
      ) : (
        <div className="tw" onPointerEnter={() => setHovered(true)} onPointerLeave={() => setHovered(false)}>
          <table className="t cards">
            <thead>
              <tr>
                <th scope="col">Job</th>
                <th scope="col">State</th>
                <th scope="col" colSpan={2}>Progress</th>
                <th scope="col">GPUs</th>
                <th scope="col" className="ra">Steps/s</th>
                <th scope="col" colSpan={2}>Relative throughput</th>
                <th scope="col" className="ra">Slowdown</th>
                <th scope="col" className="ra" colSpan={2}>Expected end</th>
                <th scope="col" className="ra" colSpan={2}>Cost, estimate</th>
              </tr>
            </thead>
            <tbody>
              {rows.map((job) => <RunningRow key={job.number} job={job} now={now} mean={mean} />)}
            </tbody>
          </table>
        </div>
      )}
    </Panel>
  );
}
