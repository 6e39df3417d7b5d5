import type { ExpectedStart } from "../../api/types";
import { count, duration, moment, momentRange, relative } from "../format";

export interface StartWords {
  /** 20 min */
  likely: string;
  /** in 10 min to 40 min */
  range: string;
  /** in 10 min to 40 min, most likely 20 min */
  sentence: string;
  /** 14:52 (14:42–15:12) */
  at: string;
  /** What it rests on, and how old it is. */
  basis: string;
}

const RUN_TIMES: Record<NonNullable<ExpectedStart["run_time"]>, string> = {
  steps: "its steps and throughput",
  history: "earlier jobs of its owner or of its size",
  time_limit: "its max_duration",
  default: "nothing that is known of it",
};

/** What is said of the start of a job that waits; null where nothing can be said. */
export function startWords(start: ExpectedStart | null, now: Date): StartWords | null {
  if (!start?.p10_at || !start.p50_at || !start.p90_at) return null;
  const [low, middle, high] = [start.p10_at, start.p50_at, start.p90_at].map((at) => new Date(at)) as [Date, Date, Date];
  const [soonest, likely, latest] = [low, middle, high].map((at) => duration((at.getTime() - now.getTime()) / 1000)) as [string, string, string];
  const range = soonest === latest ? `in ${likely}` : `in ${soonest} to ${latest}`;
  return {
    likely,
    range,
    sentence: soonest === latest ? range : `${range}, most likely ${likely}`,
    at: `${moment(middle, now)} (${momentRange(low, high, now)})`,
    basis: basisWords(start, now),
  };
}

function basisWords(start: ExpectedStart, now: Date): string {
  return [
    start.basis === "interpolated" ? "from the work ahead of it" : "from simulating the queue",
    start.outcomes > 0 ? `calibrated on ${count(start.outcomes, "start")}` : "not calibrated yet",
    start.run_time ? `its run time from ${RUN_TIMES[start.run_time]}` : "",
    start.as_of ? `worked out ${relative(new Date(start.as_of), now)}` : "",
  ].filter(Boolean).join(", ");
}
