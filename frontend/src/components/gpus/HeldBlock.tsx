import type { CSSProperties, ReactNode } from "react";
import { Link } from "react-router";
import { jobMark, jobPaint } from "../../lib/highlight";
import { JOB_STATES } from "../../lib/job/jobState";
import type { JobView } from "../../lib/live/liveContext";
import { isolated } from "../../lib/isolated";

interface Props {
  number: number;
  job: JobView | undefined;
  moving: boolean;
  guarded: boolean;
  emulated: boolean;
  where: string;
  className?: string;
  style: CSSProperties;
  children: ReactNode;
}

/** What a job has, in its colour and hatch, and the way to the job for who may read it. */
export function HeldBlock({ number, job, moving, guarded, emulated, where, className = "", style, children }: Props) {
  const word = job ? JOB_STATES[job.state].word.toLowerCase() : "allocated";
  const shown = {
    className: `blk jx${moving ? " moving" : guarded || emulated ? " patterned" : ""}${className}`,
    style: { ...style, ...jobPaint(number) },
    title: `#${number} ${isolated(job?.name ?? job?.project ?? "")}, ${word}${guarded ? ", protected" : ""}${emulated ? ", emulated" : ""}: ${where}`,
    ...jobMark(number),
  };
  const inside = (
    <>
      {guarded && <i className="hx protected" />}
      {emulated && !guarded && <i className="hx emulated" />}
      {children}
    </>
  );
  return job?.full ? <Link to={`/jobs/${number}`} {...shown}>{inside}</Link> : <div {...shown}>{inside}</div>;
}
