import { memo } from "react";
import { useNavigate } from "react-router";
import type { Job } from "../../api/types";
import { JobRef } from "../../components/JobRef";
import { Name } from "../../components/Name";
import { Emulated, StateChip } from "../../components/StateChip";
import { Icon } from "../../components/icons";
import { basisOf, clock, count, duration, gangWords, money, moment, momentRange, number, partOf, percent, THIN } from "../../lib/format";
import { jobMark, jobPaint } from "../../lib/highlight";
import { whereOf } from "../../lib/job/allocation";
import type { JobView } from "../../lib/live/liveContext";

interface Props {
  job: JobView;
  now: Date;
  mean: number | null;
}

export const RunningRow = memo(function RunningRow({ job, now, mean }: Props) {
  const navigate = useNavigate();
  const { full } = job;
  const open = full ? () => void navigate(`/jobs/${job.number}`) : undefined;
  return (
    <tr className="jx" data-row style={{ ...jobPaint(job.number), cursor: full ? "pointer" : "default" }} onClick={open} {...jobMark(job.number)}>
      <td className="wide"><JobRef number={job.number} name={job.name} project={job.project} array={job.full?.array} /></td>
      <td>
        <span style={{ display: "inline-flex", gap: 8, alignItems: "center" }}>
          <StateChip state={job.state} />
          {full && <Protection job={full} now={now} />}
          {full?.idle && <span className="chip warn" title={full.idle.text}>idle {duration((now.getTime() - Date.parse(full.idle.since_at)) / 1000)}</span>}
          {full?.emulated && <Emulated />}
        </span>
      </td>
      {full ? <Figures job={full} now={now} mean={mean} /> : <><td colSpan={2} /><td>{partOf(job.share_percent, count(job.gpus, "GPU"))}</td><td colSpan={8} /></>}
    </tr>
  );
});

function Protection({ job, now }: { job: Job; now: Date }) {
  const until = job.protected_until_at ? new Date(job.protected_until_at) : null;
  if (!until || until <= now) return null;
  return <span className="chip" title="Keeps its GPUs until then"><Icon name="lock" size={11} />until {clock(until)}</span>;
}

function Figures({ job, now, mean }: { job: Job; now: Date; mean: number | null }) {
  const speed = job.throughput.steps_per_s;
  const paused = job.state !== "running";
  const where = whereOf(job);
  return (
    <>
      <td className="only-wide" style={{ width: 52 }}><span className="bar" style={{ width: 48 }}><i style={{ width: percent(job.progress).replace(/\s/g, "") }} /></span></td>
      <td className="ra" data-l="Progress" title={`${job.step.toLocaleString("en-US")} of ${job.total_steps.toLocaleString("en-US")} steps`}>{percent(job.progress)}</td>
      <td data-l="GPUs" title={where.long}>
        {job.allocation ? <span>{gangWords(job.allocation)} <span className="sub"><Name>{where.short}</Name></span></span> : <span className="sub">no GPUs</span>}
      </td>
      <td className="ra" data-l="Steps/s" title={speedTitle(job)}>{paused || speed === null ? <span className="sub">{paused ? "paused" : "–"}</span> : number(speed)}</td>
      <td className="ra" data-l="Relative throughput">{job.relative_throughput === null ? "–" : number(job.relative_throughput, 2)}</td>
      <td className="only-wide" style={{ width: 74 }}>{job.relative_throughput !== null && <Scale share={job.relative_throughput} mean={mean} />}</td>
      <td className="ra only-wide">{job.slowdown === null ? "–" : `${number(job.slowdown, 2)}${THIN}×`}</td>
      <ExpectedEnd job={job} now={now} />
      <td className="ra" data-l="Cost">{money(job.cost.so_far, job.cost.currency)}</td>
      <td className="ra only-wide"><span className="sub">{job.cost.estimated !== null ? money(job.cost.estimated, job.cost.currency) : ""}</span></td>
    </>
  );
}

function speedTitle(job: Job): string | undefined {
  const throughput = job.throughput;
  if (throughput.predicted_steps_per_s === null) return job.pace_missed ? "It cannot keep the emulated pace" : undefined;
  const basis = basisOf(throughput.source ?? "catalogue", throughput.age_s, throughput.samples);
  const missed = job.pace_missed ? "; it cannot keep the emulated pace" : "";
  return `predicted ${number(throughput.predicted_steps_per_s)} steps/s, ${basis}${missed}`;
}

function ExpectedEnd({ job, now }: { job: Job; now: Date }) {
  if (!job.expected_end_at) return <><td className="ra" data-l="Expected end"><span className="sub">not known</span></td><td className="only-wide" /></>;
  const end = new Date(job.expected_end_at);
  const left = (end.getTime() - now.getTime()) / 1000;
  const low = job.expected_end_low_at ? new Date(job.expected_end_low_at) : null;
  const high = job.expected_end_high_at ? new Date(job.expected_end_high_at) : null;
  const title = low && high ? `p10–p90: ${momentRange(low, high, now)}` : undefined;
  return (
    <>
      <td className="ra" data-l="Expected end" title={title}>{moment(end, now)}</td>
      <td className="ra only-wide" title={title}><span className="sub">{left > 0 ? duration(left) : "due"}</span></td>
    </>
  );
}

function Scale({ share, mean }: { share: number; mean: number | null }) {
  const at = (value: number) => `${Math.min(100, Math.max(0, value * 100))}%`;
  return <span className="scale" aria-hidden><i style={{ width: at(share) }} />{mean !== null && <u style={{ left: at(mean) }} title={`mean ${number(mean)}`} />}</span>;
}
