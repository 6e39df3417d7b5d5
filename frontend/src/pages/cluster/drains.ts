import type { ClusterNode, DrainedJob } from "../../api/types";
import { count } from "../../lib/format";

const HOUR_MS = 3_600_000;
/** "Tonight" is at this hour, today's while that is an hour ahead, else tomorrow's. */
const NIGHT = 22;

export type When = "now" | "1h" | "4h" | "tonight" | "own";

export const WHEN_WORDS: Record<When, string> = { now: "Now", "1h": "Within 1 h", "4h": "Within 4 h", tonight: "Tonight", own: "Another time" };

function tonight(now: Date): Date {
  const at = new Date(now);
  at.setHours(NIGHT, 0, 0, 0);
  if (at.getTime() < now.getTime() + HOUR_MS) at.setDate(at.getDate() + 1);
  return at;
}

/** The deadline of a choice; null: at once, undefined: not said yet, or no time to come. */
export function deadlineOf(when: When, own: string, now: Date): Date | null | undefined {
  if (when === "now") return null;
  if (when === "tonight") return tonight(now);
  if (when !== "own") return new Date(now.getTime() + (when === "1h" ? 1 : 4) * HOUR_MS);
  const at = new Date(own);
  return own === "" || Number.isNaN(at.getTime()) || at <= now ? undefined : at;
}

const of = (jobs: DrainedJob[], outcome: DrainedJob["outcome"]) => jobs.filter((one) => one.outcome === outcome).length;

export const lostBy = (jobs: DrainedJob[]): number => of(jobs, "lost");

/** "1 ends there, 2 move with checkpoints, 1 will be lost"; jobs of which nothing may be known are counted as such. */
export function consequences(jobs: DrainedJob[]): string {
  const ends = of(jobs, "ends");
  const moves = of(jobs, "moves");
  const lost = lostBy(jobs);
  const others = of(jobs, null);
  const parts = [
    ends > 0 ? `${ends} ${ends === 1 ? "ends" : "end"} there` : "",
    moves > 0 ? `${moves} ${moves === 1 ? "moves with a checkpoint" : "move with checkpoints"}` : "",
    lost > 0 ? `${lost} will be lost` : "",
    others > 0 ? `${others} of other projects` : "",
  ].filter(Boolean);
  return parts.length > 0 ? `${count(jobs.length, "job")} there: ${parts.join(", ")}.` : "No job is there.";
}

/** Lost ones first, then by their expected end; those of which nothing is known last. */
export function inOrder(jobs: DrainedJob[]): DrainedJob[] {
  const rank = (one: DrainedJob) => (one.outcome === "lost" ? 0 : one.outcome === null ? 2 : 1);
  const end = (one: DrainedJob) => (one.expected_end_at ? Date.parse(one.expected_end_at) : Infinity);
  const byEnd = (a: DrainedJob, b: DrainedJob) => (end(a) === end(b) ? 0 : end(a) - end(b));
  return [...jobs].sort((a, b) => rank(a) - rank(b) || byEnd(a, b) || a.job.number - b.job.number);
}

export type Drained = ClusterNode & { drain: NonNullable<ClusterNode["drain"]> };

/** Those with jobs first, the next deadline before later ones and before none. */
export function drainedNodes(nodes: ClusterNode[]): Drained[] {
  const due = (node: Drained) => (node.drain.deadline_at ? Date.parse(node.drain.deadline_at) : Infinity);
  const byDue = (a: Drained, b: Drained) => (due(a) === due(b) ? 0 : due(a) - due(b));
  return nodes
    .filter((node): node is Drained => node.drain !== null)
    .sort((a, b) => Number(a.drain.state === "drained") - Number(b.drain.state === "drained") || byDue(a, b) || a.name.localeCompare(b.name));
}
