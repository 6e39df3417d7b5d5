import { expect, test } from "vitest";
import type { Fairness, FairnessPoint, FairnessSeries, FairnessStanding } from "../../api/types";
import { columnsOf, fairnessParts, pointAt, rowsOf, spanNamed, spreadWords } from "./fairness";

const SPREAD = { lowest: 0.12, median: 0.5, mean: 0.46, highest: 0.63 };
const STANDING = { running: 12, known: 12, waiting: 3, relative_throughput: SPREAD, slowdown: { mean: 2.6, highest: 8.3 }, variance: 0.0124 };
const VISION = { key: "vision", name: "Vision" };
const JOB = {
  number: 2431, name: "night", array: null, project: { key: "speech", name: "Speech" }, owner: null, state: "running" as const, gpus: 1,
  relative_throughput: 0.12, slowdown: 8.3, waited_s: 60, reason: { code: "held", text: "It runs.", slurm: null }, emulated: false,
};

function fairness(changes: Partial<Fairness> = {}): Fairness {
  return {
    at: "2026-11-21T14:00:00Z", policy: { name: "f_scheduling", v_bound: 0.05 }, within_bound: true, cluster: STANDING,
    projects: [], more_projects: false, users: [], more_users: false, worst_off: [JOB], longest_waiting: [], ...changes,
  };
}
const said = (found: Fairness) => fairnessParts(found).map((part) => part.text).join("");

test("the sentence says how fast jobs are, whether that is within the bound, and who is worst off", () => {
  expect(said(fairness())).toBe(
    "On an even keel: 12 jobs run at 0.12 to 0.63 of the speed that they would have alone; the variance is 0.012, within its bound of 0.050. Worst off is #2431 of Speech: 0.12.",
  );
  expect(said(fairness({ within_bound: false }))).toMatch(/^Listing: .*not within its bound of 0\.050\./);
});

test("without a bound it says so", () => {
  const found = fairness({ policy: { name: "fifo_gang", v_bound: null }, within_bound: null });
  expect(said(found)).toMatch(/^How evenly jobs are slowed: 12 jobs run .*the policy fifo_gang sets no bound\./);
});

test("of a worse job that the reader may not see it says no more than its figure", () => {
  expect(said(fairness({ worst_off: [{ ...JOB, relative_throughput: 0.4 }] }))).toMatch(/Worst off of those listed is #2431 of Speech: 0\.40; the lowest in the cluster is 0\.12\.$/);
  expect(said(fairness({ worst_off: [] }))).toMatch(/The lowest in the cluster is 0\.12, of a job of another project\.$/);
});

test("what is not known is said to be so", () => {
  expect(said(fairness({ cluster: { ...STANDING, known: 10 } }))).toMatch(/: of 12 jobs the 10 that are known run at 0\.12/);
  const unknown = { ...STANDING, running: 1, known: 0, relative_throughput: null, slowdown: null, variance: null };
  expect(said(fairness({ cluster: unknown, within_bound: null }))).toBe("How evenly jobs are slowed: of 1 job with GPUs it is not known yet how fast it would be alone.");
});

test("where nothing runs it says who waits", () => {
  const idle = { ...STANDING, running: 0, known: 0, relative_throughput: null, slowdown: null, variance: null };
  expect(said(fairness({ cluster: { ...idle, waiting: 1 } }))).toBe("Nothing runs yet. 1 job waits.");
  expect(said(fairness({ cluster: { ...idle, waiting: 0 } }))).toBe("All is calm. No job has GPUs, and none waits.");
});

const FIGURES = { samples: 5, running: 2, waiting: 0, relative_throughput: SPREAD, slowdown: null, variance: null, v_bound: null };
const standing = (project: Fairness["projects"][number]["project"], user: FairnessStanding["user"] = null): FairnessStanding => ({ ...STANDING, project, user });
const series = (project: FairnessSeries["project"], user: FairnessSeries["user"] = null): FairnessSeries => ({ project, user, figures: FIGURES, points: [] });

test("rows are those of now, and behind them those who had jobs before", () => {
  const speech = { key: "speech", name: "Speech" };
  const rows = rowsOf([standing(VISION)], [series(speech), series(VISION)]);
  expect(rows.map((row) => [row.key, row.now !== null, row.before !== null])).toEqual([["vision/", true, true], ["speech/", false, true]]);
  const ana = { name: "Ana", email: "ana@example.org" };
  expect(rowsOf([standing(VISION, ana)], [series(speech, ana)])).toHaveLength(2);
});

const point = (at: string, spread: typeof SPREAD | null): FairnessPoint => ({ ...FIGURES, at, relative_throughput: spread });

test("a strip has a column for each point in which something was known, 1 at its top", () => {
  const points = [point("2026-11-21T10:00:00Z", SPREAD), point("2026-11-21T11:00:00Z", null), point("2026-11-21T12:00:00Z", { lowest: 0.5, median: 1, mean: 0.9, highest: 1 })];
  const columns = columnsOf(points, Date.parse("2026-11-21T10:00:00Z"), Date.parse("2026-11-21T14:00:00Z"), 400, 50);
  expect(columns.map(({ x, top, middle, bottom }) => [x, top, middle, bottom])).toEqual([[0, 18.5, 25, 44], [200, 0, 0, 25]]);
  expect(columnsOf(points, 5, 5, 400, 50)).toEqual([]);
});

test("a time is read from the point before it, not from one far away", () => {
  const points = [point("2026-11-21T10:00:00Z", SPREAD), point("2026-11-21T11:00:00Z", SPREAD)];
  expect(pointAt(points, Date.parse("2026-11-21T11:20:00Z"), 3_600_000)).toBe(points[1]);
  expect(pointAt(points, Date.parse("2026-11-21T10:59:00Z"), 3_600_000)).toBe(points[0]);
  expect(pointAt(points, Date.parse("2026-11-21T13:00:00Z"), 3_600_000)).toBeNull();
  expect(pointAt(points, Date.parse("2026-11-21T09:00:00Z"), 3_600_000)).toBeNull();
});

test("an unknown period is the last day, and equal jobs have one figure", () => {
  expect(spanNamed("year").key).toBe("24h");
  expect(spanNamed("7d").seconds).toBe(604_800);
  expect(spreadWords({ lowest: 0.5, median: 0.5, mean: 0.5, highest: 0.5 })).toBe("0.50");
  expect(spreadWords(SPREAD)).toBe("0.50 (0.12\u2009to\u20090.63)");
  expect(spreadWords(null)).toBe("not known");
});
