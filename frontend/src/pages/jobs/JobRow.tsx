import { useNavigate } from "react-router";
import type { Job } from "../../api/types";
import { JobRef } from "../../components/JobRef";
import { Emulated, StateChip } from "../../components/StateChip";
import { dateTime, duration, moment, money, percent, range, THIN, typeName } from "../../lib/format";
import { jobMark, jobPaint } from "../../lib/highlight";
import { useLiveJobs } from "../../lib/liveContext";

export function gpusOf(job: Job): string {
  if (job.allocation) return `${job.allocation.count}${THIN}×${THIN}${typeName(job.allocation.type)}`;
  return `wants ${range(job.gpus.min, job.gpus.max)}`;
}

export function JobRow({ job: listed, now }: { job: Job; now: Date }) {
  const navigate = useNavigate();
  const job = useLiveJobs().get(listed.number)?.full ?? listed;
  const submitted = new Date(job.submitted_at);
  const ended = job.finished_at ? new Date(job.finished_at) : null;
  return (
    <tr className="jx" data-row style={{ ...jobPaint(job.number), cursor: "pointer" }} onClick={() => void navigate(`/jobs/${job.number}`)} {...jobMark(job.number)}>
      <td className="wide"><JobRef number={job.number} name={job.name} array={job.array} /></td>
      <td><span style={{ display: "inline-flex", gap: 8 }} title={job.reason.text}><StateChip state={job.state} />{job.emulated && <Emulated />}</span></td>
      <td data-l="Project">{job.project.name}</td>
      <td data-l="Owner">{job.owner ? job.owner.name || job.owner.email : <span className="sub">no longer here</span>}</td>
      <td className="ra" data-l="Progress">{percent(job.progress)}</td>
      <td data-l="GPUs">{job.allocation ? gpusOf(job) : <span className="sub" style={{ margin: 0 }}>{gpusOf(job)}</span>}</td>
      <td className="ra" data-l="Submitted" title={dateTime(submitted)}>{moment(submitted, now)}</td>
      <td className="ra" data-l="Ended">{ended ? <span title={dateTime(ended)}>{moment(ended, now)}<span className="sub"> {duration((ended.getTime() - submitted.getTime()) / 1000)}</span></span> : <span className="sub">–</span>}</td>
      <td className="ra" data-l="Cost">{money(job.cost.so_far, job.cost.currency)}</td>
    </tr>
  );
}
