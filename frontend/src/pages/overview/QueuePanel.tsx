import { Link } from "react-router";
import type { ClusterState } from "../../lib/live/blanks";
import { JobRef } from "../../components/JobRef";
import { Panel } from "../../components/Panel";
import { count, duration, partOf, range, relative, THIN, typeName } from "../../lib/format";
import { startWords } from "../../lib/job/expectedStart";
import { jobMark } from "../../lib/highlight";
import type { JobView } from "../../lib/live/liveContext";
import { sentenceOf } from "../../lib/isolated";

interface Props {
  cluster: ClusterState;
  jobs: Map<number, JobView>;
  now: Date;
}

export function QueuePanel({ cluster, jobs, now }: Props) {
  const queue = cluster.queue;
  const meta = queue.length === 0 ? undefined : `${count(queue.length, "job")}, in order`;
  return (
    <Panel title="Queue" meta={meta} right={queue.length > 0 && <span className="sub">{startsHead(queue, jobs, now)}</span>}>
      {queue.length === 0 ? (
        <p className="empty">Nothing waits. <Link to="/submit">Submit a job</Link></p>
      ) : (
        <ol className="list scroll" style={{ maxHeight: 430 }}>
          {queue.map((number, i) => <QueueRow key={number} position={i + 1} number={number} job={jobs.get(number)} now={now} />)}
        </ol>
      )}
    </Panel>
  );
}

/** What stands over the expected starts: how old the newest of them is. */
function startsHead(queue: number[], jobs: Map<number, JobView>, now: Date): string {
  const newest = Math.max(...queue.map((number) => Date.parse(jobs.get(number)?.full?.expected_start?.as_of ?? "")).filter(Number.isFinite));
  return Number.isFinite(newest) ? `starts, as of ${relative(new Date(newest), now)}` : "starts";
}

function wants(job: JobView | undefined): string {
  if (!job?.full) return job && job.gpus > 0 ? partOf(job.share_percent, count(job.gpus, "GPU")) : "";
  const { min, max, types, share_percent } = job.full.gpus;
  return partOf(share_percent, `${range(min, max)}${THIN}×${THIN}${types.length > 0 ? types.map(typeName).join(" or ") : "GPU"}`);
}

function QueueRow({ position, number, job, now }: { position: number; number: number; job: JobView | undefined; now: Date }) {
  const full = job?.full ?? null;
  const since = full ? Date.parse(full.submitted_at) : NaN;
  const start = startWords(full?.expected_start ?? null, now);
  return (
    <li className="q jx" data-row {...jobMark(number)}>
      <span className="p">{position}</span>
      <span style={{ display: "flex", gap: 6, minWidth: 0, alignItems: "baseline" }}>
        <JobRef number={number} name={job?.name ?? null} project={job?.project ?? ""} array={job?.full?.array} />
        <span className="sub nowrap">{wants(job)}</span>
      </span>
      <span className="why" title={full?.reason?.code}>{full?.reason ? sentenceOf(full.reason.text) : (full ? "" : "A job of another project.")}</span>
      {full && start && (
        <span className="e" title={`Expected to start ${start.at}, ${start.basis}; submitted ${relative(new Date(since), now)}`}>
          <b>~{THIN}{start.likely}</b>
          {start.range}
        </span>
      )}
      {full && !start && (
        <span className="e" title={`${full.expected_start?.reason?.text ?? "Its start is not known yet."} Submitted ${relative(new Date(since), now)}`}>
          <b>–</b>
          waits {duration((now.getTime() - since) / 1000)}
        </span>
      )}
    </li>
  );
}
