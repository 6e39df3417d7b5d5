import { Link } from "react-router";
import { useSession } from "../../api/hooks";
import type { JobDetail } from "../../api/types";
import { RetryChip } from "../../components/RetryChip";
import { Emulated, StateChip } from "../../components/StateChip";
import { dateTime, gibibytes, integer, moment, partOf, range, relative, THIN, typeName } from "../../lib/format";
import { jobPaint } from "../../lib/highlight";
import { besideGpus } from "../../lib/jobfile/jobFile";
import { reasonSentence } from "../../lib/job/jobView";
import { IdleNote } from "./IdleNote";
import { JobActions } from "./JobActions";
import css from "./job.module.css";
import { Name } from "../../components/Name";
import { isolated, sentenceOf } from "../../lib/isolated";

export function JobHeader({ job, now }: { job: JobDetail; now: Date }) {
  const session = useSession().data;
  const reason = reasonSentence(job, now);
  return (
    <header style={{ display: "grid", gap: 4, gridTemplateColumns: "minmax(0, 1fr)" }}>
      <div className={css.head}>
        <h1 className="title">
          <i className="sw" style={jobPaint(job.number)} aria-hidden />
          <span className="num">{job.number}</span>
          <Name>{job.name}</Name>
          <StateChip state={job.state} />
          {job.emulated && <Emulated />}
          {job.hold && <span className="chip warn" title={sentenceOf(job.hold.text)}>{job.hold.kind === "cost" || job.hold.kind === "idle" ? "suspended" : "on hold"}</span>}
          {job.idle && <span className="chip warn" title={job.idle.text}>idle</span>}
          <RetryChip job={job} now={now} />
          {job.ending && <span className="chip warn">ending</span>}
          {job.pace_missed && <span className="chip warn" title="The machine is too slow for the emulated pace; times are longer than the catalogue says">pace missed</span>}
        </h1>
        <JobActions job={job} session={session} />
      </div>
      {reason && <p className={css.reason} title={job.reason?.code}>{sentenceOf(reason)}</p>}
      {job.warnings.map((text) => <p key={text} className="fault warn" role="note" style={{ margin: 0 }}>{sentenceOf(text)}</p>)}
      {job.idle && <IdleNote job={job} idle={job.idle} now={now} />}
      <Facts job={job} now={now} />
    </header>
  );
}

function Facts({ job, now }: { job: JobDetail; now: Date }) {
  const submitted = new Date(job.submitted_at);
  const program = job.model_type ?? job.command ?? "";
  const clusters = useSession().data?.clusters.length ?? 1;
  const types = job.gpus.types.length > 0 ? job.gpus.types.map(typeName).join(" or ") : "GPUs of any type";
  return (
    <div className="facts">
      <span>Project <b><Name>{job.project.name}</Name></b></span>
      {job.owner && <span>Owner <b><Name>{job.owner.name || job.owner.email}</Name></b></span>}
      <span className="ell" style={{ maxWidth: "min(420px, 100%)" }} title={program}>Program <b className={job.model_type ? "" : "mono"}>{program}</b>, batch <b>{integer(job.batch_size)}</b></span>
      <span title={dateTime(submitted)}>Submitted <b>{moment(submitted, now)}</b>, {relative(submitted, now)}</span>
      <span>Wants <b>{partOf(job.gpus.share_percent, `${range(job.gpus.min, job.gpus.max)}${THIN}×${THIN}${types}`)}</b>{job.gpus.memory_mib != null && <> with <b>{gibibytes(job.gpus.memory_mib)}</b> of GPU memory</>}</span>
      {besideGpus(job.spec) && <span>Of each node <b>{besideGpus(job.spec)}</b></span>}
      {(job.cluster.choice || clusters > 1) && <span title={job.cluster.choice ?? undefined}>Cluster <b><Name>{job.cluster.name}</Name></b></span>}
      {job.cluster.choice && <span>{sentenceOf(job.cluster.choice)}</span>}
      {job.partition && <span>Partition <b><Name>{job.partition}</Name></b></span>}
      {job.deadline_at && <span title={dateTime(new Date(job.deadline_at))}>Deadline <b>{moment(new Date(job.deadline_at), now)}</b></span>}
      {job.array && <span>Index <b>{integer(job.array.index)}</b> of <Link className="link" to={`/jobs?array=${job.array.number}`}>array {job.array.number}</Link>, {integer(job.array.size)} jobs</span>}
      {job.resubmit_of != null && <span>Repeats <Link className="link" to={`/jobs/${job.resubmit_of}`}>{job.resubmit_of}</Link></span>}
      {job.resumed_from && <span>Began at step <b>{integer(job.resumed_from.step)}</b>{job.resumed_from.job != null && <> of <Link className="link" to={`/jobs/${job.resumed_from.job}`}>{job.resumed_from.job}</Link></>}</span>}
      {Object.keys(job.labels).length > 0 && (
        <span className={css.labels}>Labels {Object.entries(job.labels).map(([key, value]) => <span key={key} className="chip"><Name>{`${key}=${isolated(value)}`}</Name></span>)}</span>
      )}
    </div>
  );
}
