import type { Checkpoint, Job, JobTimeline } from "../../api/types";
import { clock, count, duration, integer, money, moment, momentRange, number, relative } from "../format";
import { startWords } from "./expectedStart";
import { hasEnded } from "./jobState";

/** What stands under a figure of the strip, in words. */
export interface Figure {
  label: string;
  value: string;
  unit?: string;
  detail: string;
}

/** While it waits, its start; then its end. */
export function endFigure(job: Job, now: Date): Figure {
  if (job.expected_start) {
    const start = startWords(job.expected_start, now);
    if (!start) return { label: "Expected start", value: "–", detail: job.expected_start.reason?.text ?? "not known yet" };
    return { label: "Expected start", value: `~ ${start.likely}`, detail: start.at };
  }
  if (job.finished_at) {
    const at = new Date(job.finished_at);
    return { label: "Ended", value: moment(at, now), detail: relative(at, now) };
  }
  if (!job.expected_end_at) return { label: "Expected end", value: "–", detail: job.state === "queued" ? "not started" : "not known yet" };
  const at = new Date(job.expected_end_at);
  const low = job.expected_end_low_at ? new Date(job.expected_end_low_at) : null;
  const high = job.expected_end_high_at ? new Date(job.expected_end_high_at) : null;
  const range = low && high ? ` (${momentRange(low, high, now)})` : "";
  return { label: "Expected end", value: moment(at, now), detail: relative(at, now) + range };
}

/** The mean over its training, of the steps that it made itself. */
export function meanSpeed(job: Job): number | null {
  const made = job.step - (job.resumed_from?.step ?? 0);
  return job.times.running_s > 0 && made > 0 ? made / job.times.running_s : null;
}

export function throughputFigure(job: Job): Figure {
  if (job.finished_at) {
    const mean = meanSpeed(job);
    const detail = mean === null ? "it made no step" : `mean of ${duration(job.times.running_s)} of training`;
    return { label: "Throughput", value: mean === null ? "–" : number(mean), unit: "steps/s", detail };
  }
  const speed = job.throughput?.steps_per_s ?? null;
  const predicted = job.throughput?.predicted_steps_per_s ?? null;
  const parts = [predicted === null ? "" : `predicted ${number(predicted)}`, sourceWords(job)].filter(Boolean);
  const shown = job.state === "running" && speed !== null ? number(speed) : "–";
  return { label: "Throughput", value: shown, unit: "steps/s", detail: parts.join(", ") || "no prediction" };
}

function sourceWords(job: Job): string {
  const { source, age_s: age, samples } = job.throughput ?? {};
  if (!source) return "";
  if (source === "measured") return `measured${samples ? ` ${count(samples, "time")}` : ""}${age == null ? "" : `, ${duration(age)} old`}`;
  return `from ${source}`;
}

/** Times of a job that was fetched so many seconds ago: that of its present state has grown since. */
export function timesAfter(job: Job, seconds: number): Job["times"] {
  if (hasEnded(job.state)) return job.times;
  const heading = job.run_state.startsWith("WAITING") ? "queueing_s" : job.state === "running" ? "running_s" : "launching_s";
  return { ...job.times, [heading]: job.times[heading] + Math.max(0, seconds) };
}

export function waitedFigure(job: Job): Figure {
  const { queueing_s: queueing, launching_s: launching } = job.times;
  const resizes = job.resizes === 0 ? "" : `${count(job.resizes, "resize")}, `;
  return { label: "Waited", value: duration(queueing), detail: `${resizes}${duration(launching)} launching` };
}

/** What cancelling now would throw away. */
export function lossWords(job: Job, checkpoints: Checkpoint[]): string {
  if (job.step === 0 && job.times?.running_s > 0) return "It reports no steps: what its program does not save is lost.";
  if (job.step === 0) return "It has not made a step yet, so no work is lost.";
  const kept = checkpoints.reduce((most, checkpoint) => Math.max(most, checkpoint.step), 0);
  const spent = job.cost ? ` ${money(job.cost.so_far, job.cost.currency)} has been spent.` : "";
  if (kept === 0) return `It has no checkpoint: all ${integer(job.step)} steps are lost.${spent}`;
  const lost = Math.max(0, job.step - kept);
  return `Its last checkpoint, step ${integer(kept)}, is kept; ${lost === 0 ? "nothing after it is lost" : `the ${count(lost, "step")} after it are lost unless it can still write one`}.${spent}`;
}

const ENDING = "It was asked to end and has 10 s to save what it has; its GPUs are free when it is gone.";

/** While a job waits to be tried again: how the attempt before ended, in how long, and which attempt it will be. */
export function retrySentence(retry: NonNullable<Job["retry"]>, now: Date): string | null {
  const left = retryLeft(retry, now);
  if (left === null) return null;
  const attempt = `attempt ${integer(retry.attempt)}${retry.of == null ? "" : ` of ${integer(retry.of)}`}`;
  return `${retry.why}; tried again in ${duration(left)} (${attempt}).`;
}

/** Seconds until a job is tried again; null: it may start already. */
export function retryLeft(retry: NonNullable<Job["retry"]>, now: Date): number | null {
  const left = retry.at ? Math.ceil((Date.parse(retry.at) - now.getTime()) / 1000) : 0;
  return left > 0 ? left : null;
}

/** The one sentence under the title. */
export function reasonSentence(job: Job, now: Date): string {
  if (job.ending) return ENDING;
  if (job.exit && hasEnded(job.state) && job.state !== "succeeded") return job.exit.message || `Ended: ${job.exit.reason}.`;
  if (job.retry) return retrySentence(job.retry, now) ?? job.reason.text;
  if (job.fetching) return `${job.fetching.charAt(0).toUpperCase()}${job.fetching.slice(1)}.`;
  if (job.reason?.text) return job.reason.text;
  if (job.state === "succeeded") return `All ${integer(job.total_steps)} steps are done${job.finished_at ? ` since ${clock(new Date(job.finished_at))}` : ""}.`;
  if (job.state === "queued") return `Waits since ${moment(new Date(job.submitted_at), now)}.`;
  return "";
}

/** First and last moment of the axis that the life of the job is drawn on. */
export function lifeSpan(job: Job, timeline: JobTimeline, now: Date): { from: number; to: number } {
  const from = Math.min(Date.parse(job.submitted_at), ...timeline.states.map((state) => Date.parse(state.from_at)));
  if (job.finished_at) return { from, to: Math.max(Date.parse(job.finished_at), from + 1000) };
  const end = job.expected_end_high_at ?? job.expected_end_at;
  const ahead = end ? Math.min(Date.parse(end), now.getTime() + (now.getTime() - from) * 2) : now.getTime();
  return { from, to: Math.max(ahead, now.getTime(), from + 1000) };
}
