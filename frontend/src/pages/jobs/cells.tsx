import type { ReactNode } from "react";
import { Link } from "react-router";
import type { Job, JobColumn } from "../../api/types";
import { RetryChip } from "../../components/RetryChip";
import { Emulated, StateChip } from "../../components/StateChip";
import { dateTime, duration, gangWords, integer, moment, money, number, partOf, percent, range, withUnit } from "../../lib/format";
import { Name } from "../../components/Name";
import { isolated, sentenceOf } from "../../lib/isolated";

export const NONE = <span className="sub" style={{ margin: 0 }}>–</span>;

function Gpus({ job }: { job: Job }) {
  if (job.allocation) return <>{gangWords(job.allocation)}</>;
  return <span className="sub" style={{ margin: 0 }}>wants {partOf(job.gpus.share_percent, range(job.gpus.min, job.gpus.max))}</span>;
}

function Ended({ job, now }: { job: Job; now: Date }) {
  if (!job.finished_at) return NONE;
  const [submitted, ended] = [new Date(job.submitted_at), new Date(job.finished_at)];
  return <span title={`${dateTime(ended)}, ${duration((ended.getTime() - submitted.getTime()) / 1000)} after its submission`}>{moment(ended, now)}</span>;
}

function At({ at, now }: { at: string | null; now: Date }) {
  return at === null ? NONE : <span title={dateTime(new Date(at))}>{moment(new Date(at), now)}</span>;
}

/** Each leads to all jobs that have it. */
function Labels({ job }: { job: Job }) {
  const pairs = Object.entries(job.labels);
  if (pairs.length === 0) return NONE;
  return (
    <span title={pairs.map(([key, value]) => `${key}=${isolated(value)}`).join(", ")}>
      {pairs.map(([key, value]) => <Link key={key} className="chip" style={{ marginRight: 4 }} to={`/jobs?${new URLSearchParams({ label: `${key}:${value}` })}`} onClick={(event) => event.stopPropagation()}>{key}=<bdi>{value}</bdi></Link>)}
    </span>
  );
}

/** What a column says of a job. */
export const JOB_CELLS: Record<JobColumn, (job: Job, now: Date) => ReactNode> = {
  state: (job, now) => <span style={{ display: "inline-flex", gap: 8 }} title={sentenceOf(job.reason.text)}><StateChip state={job.state} /><RetryChip job={job} now={now} />{job.hold && <span className="chip warn" title={sentenceOf(job.hold.text)}>on hold</span>}{job.emulated && <Emulated />}</span>,
  project: (job) => <span title={job.project.key}><Name>{job.project.name}</Name></span>,
  owner: (job) => (job.owner ? <span title={job.owner.email}><Name>{job.owner.name || job.owner.email}</Name></span> : <span className="sub" style={{ margin: 0 }}>no longer here</span>),
  program: (job) => <span title={job.model_type ?? job.command ?? ""} className={job.model_type ? undefined : "mono"}>{job.model_type ?? job.command ?? NONE}</span>,
  cluster: (job) => <span title={job.cluster.choice ?? undefined}><Name>{job.cluster.name}</Name></span>,
  partition: (job) => job.partition ?? NONE,
  level: (job) => job.qos ?? NONE,
  priority: (job) => integer(job.priority),
  labels: (job) => <Labels job={job} />,
  progress: (job) => percent(job.progress),
  gpus: (job) => <Gpus job={job} />,
  throughput: (job) => (job.throughput.steps_per_s === null ? NONE : withUnit(number(job.throughput.steps_per_s), "steps/s")),
  slowdown: (job) => (job.slowdown === null ? NONE : withUnit(number(job.slowdown, 2), "×")),
  waited: (job) => duration(job.times.queueing_s),
  submitted: (job, now) => <At at={job.submitted_at} now={now} />,
  started: (job, now) => <At at={job.started_at} now={now} />,
  ended: (job, now) => <Ended job={job} now={now} />,
  cost: (job) => money(job.cost.so_far, job.cost.currency),
};
