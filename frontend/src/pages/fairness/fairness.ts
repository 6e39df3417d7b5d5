import type { Fairness, FairnessPoint, FairnessSeries, FairnessStanding } from "../../api/types";
import { count, integer, number, THIN, variance, withUnit } from "../../lib/format";
import type { Part } from "../../lib/sentence/sentence";

export const SPANS = [
  { key: "24h", label: "Last 24 hours", short: "24 hours", seconds: 86_400 },
  { key: "7d", label: "Last 7 days", short: "7 days", seconds: 7 * 86_400 },
  { key: "30d", label: "Last 30 days", short: "30 days", seconds: 30 * 86_400 },
] as const;
export type Span = (typeof SPANS)[number];

export const spanNamed = (key: string | null): Span => SPANS.find((span) => span.key === key) ?? SPANS[0];

/** Of the speed that it would have alone: two digits say it. */
export const relative = (value: number): string => number(value, 2);
/** Always said as what it is: 2.1 ×. */
export const times = (value: number): string => withUnit(number(value, 2), "×");

const strong = (text: string): Part => ({ text, strong: true });
const plain = (text: string): Part => ({ text });

function headline(found: Fairness): string {
  if (found.cluster.running === 0) return found.cluster.waiting > 0 ? "Nothing runs yet" : "All is calm";
  if (found.within_bound === null) return "How evenly jobs are slowed";
  return found.within_bound ? "On an even keel" : "Listing";
}

function speeds({ cluster }: Fairness): string {
  const spread = cluster.relative_throughput;
  if (!spread) return `of ${count(cluster.running, "job")} with GPUs it is not known yet how fast ${cluster.running === 1 ? "it" : "they"} would be alone`;
  const [low, high] = [relative(spread.lowest), relative(spread.highest)];
  const who = cluster.known < cluster.running ? `of ${integer(cluster.running)} jobs the ${integer(cluster.known)} that are known run` : `${count(cluster.running, "job")} ${cluster.running === 1 ? "runs" : "run"}`;
  return `${who} at ${low === high ? low : `${low} to ${high}`} of the speed that ${cluster.known === 1 ? "it" : "they"} would have alone`;
}

function evenness({ cluster, policy, within_bound: within }: Fairness): string {
  if (cluster.variance === null) return "";
  const spread = `; the variance is ${variance(cluster.variance)}`;
  if (policy.v_bound === null) return `${spread}, and the policy ${policy.name} sets no bound`;
  return `${spread}, ${within ? "within" : "not within"} its bound of ${variance(policy.v_bound)}`;
}

/** Who of those that the reader may see, and whether somebody else is worse off. */
function worst({ cluster, worst_off: jobs }: Fairness): Part[] {
  const lowest = cluster.relative_throughput?.lowest;
  const [first] = jobs;
  if (lowest === undefined || cluster.known < 2) return [];
  if (!first || first.relative_throughput === null) return [plain(` The lowest in the cluster is ${relative(lowest)}, of a job of another project.`)];
  const named = [plain(" Worst off"), strong(` #${first.number}`), plain(` of ${first.project.name}: ${relative(first.relative_throughput)}`)];
  if (first.relative_throughput <= lowest + 1e-3) return [plain(" Worst off is"), ...named.slice(1), plain(".")];
  return [plain(" Worst off of those listed is"), ...named.slice(1), plain(`; the lowest in the cluster is ${relative(lowest)}.`)];
}

/** The answer in words. */
export function fairnessParts(found: Fairness): Part[] {
  const { running, waiting } = found.cluster;
  const lead = strong(`${headline(found)}${running === 0 ? "." : ": "}`);
  if (running === 0) return waiting > 0 ? [lead, plain(` ${count(waiting, "job")} ${waiting === 1 ? "waits" : "wait"}.`)] : [lead, plain(" No job has GPUs, and none waits.")];
  return [lead, plain(`${speeds(found)}${evenness(found)}.`), ...worst(found)];
}

type Whose = Pick<FairnessStanding, "project" | "user">;
export const keyOf = (one: { project: Whose["project"] | null; user: Whose["user"] }): string => `${one.project?.key ?? ""}/${one.user?.email ?? ""}`;

/** Now and before, of one project or one user in it. */
export interface Row extends Whose {
  key: string;
  now: FairnessStanding | null;
  before: FairnessSeries["figures"] | null;
}

/** Who has jobs now, worst off first; behind them who had some in the time chosen. */
export function rowsOf(now: FairnessStanding[], series: FairnessSeries[]): Row[] {
  const before = new Map(series.map((one) => [keyOf(one), one]));
  const rows = now.map((one): Row => ({ key: keyOf(one), project: one.project, user: one.user, now: one, before: before.get(keyOf(one))?.figures ?? null }));
  const present = new Set(rows.map((row) => row.key));
  for (const one of series) {
    if (one.project && !present.has(keyOf(one))) rows.push({ key: keyOf(one), project: one.project, user: one.user, now: null, before: one.figures });
  }
  return rows;
}

/** A column of a strip, in pixels: from the fastest job down to the slowest, and the one in the middle. */
export interface Column {
  x: number;
  top: number;
  middle: number;
  bottom: number;
  point: FairnessPoint;
}

/** Relative throughput goes from 0 at the bottom to 1 at the top; minutes in which nothing was known leave a gap. */
export function columnsOf(points: FairnessPoint[], fromMs: number, toMs: number, width: number, height: number): Column[] {
  const y = (share: number) => height * (1 - Math.min(1, Math.max(0, share)));
  return points.flatMap((point) => {
    const spread = point.relative_throughput;
    if (!spread || toMs <= fromMs) return [];
    const x = (width * (Date.parse(point.at) - fromMs)) / (toMs - fromMs);
    return [{ x, top: y(spread.highest), middle: y(spread.median), bottom: y(spread.lowest), point }];
  });
}

/** The point of each series that stands for a time: the last one at or before it, unless that is far away. */
export function pointAt(points: FairnessPoint[], atMs: number, reachMs: number): FairnessPoint | null {
  const before = points.filter((point) => Date.parse(point.at) <= atMs).at(-1);
  return before && atMs - Date.parse(before.at) <= reachMs ? before : null;
}

/** 0.41 (0.12 to 0.63). */
export function spreadWords(spread: FairnessStanding["relative_throughput"]): string {
  if (!spread) return "not known";
  const [low, high] = [relative(spread.lowest), relative(spread.highest)];
  return low === high ? low : `${relative(spread.median)} (${low}${THIN}to${THIN}${high})`;
}
