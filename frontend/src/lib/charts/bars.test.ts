import { expect, test } from "vitest";
import type { Hold } from "../../api/types";
import { anchored, bandOf, mergeHolds, type Lane } from "./bars";

test("labels at the ends of an axis are anchored there, so that none is cut", () => {
  expect(anchored(300, 58, 600, "00:11:00")).toEqual({ x: 300, textAnchor: "middle" });
  expect(anchored(590, 58, 600, "00:11:00")).toEqual({ x: 600, textAnchor: "end" });
  expect(anchored(60, 58, 600, "00:11:00")).toEqual({ x: 58, textAnchor: "start" });
});

const hold = (number: number, index: number, from: number, to: number | null, kind: Hold["kind"] = "running"): Hold => ({
  node: "n", index, job: { number, name: null, project: "p" }, epoch: 1, count: 1, share_percent: 100, kind, from_at: new Date(from).toISOString(), to_at: to === null ? null : new Date(to).toISOString(),
});
const slots = (...holds: Hold[]) => mergeHolds(holds).sort((a, b) => a.start - b.start || a.job.number - b.job.number).map((bar) => [bar.job.number, bar.slot, bar.slots]);

test("jobs that share a GPU stand beside each other, each in its place until it leaves", () => {
  expect(slots(hold(1, 0, 0, 50), hold(2, 0, 10, 20, "launching"), hold(2, 0, 20, 90), hold(3, 0, 60, null))).toEqual([[1, 0, 2], [2, 1, 2], [2, 1, 2], [3, 0, 2]]);
  expect(slots(hold(1, 0, 0, 20), hold(2, 0, 20, null))).toEqual([[1, 0, 1], [2, 0, 1]]);
  expect(slots(hold(1, 0, 0, 20), hold(2, 0, 10, 30), hold(3, 0, 30, null))).toEqual([[1, 0, 2], [2, 1, 2], [3, 0, 1]]);
});

test("a place is its part of the GPU's line", () => {
  const [first, second] = mergeHolds([hold(1, 1, 0, null), hold(2, 1, 5, null)]);
  const lane = { top: 4, row: 32 } as Lane;
  expect([bandOf(first!, lane), bandOf(second!, lane)]).toEqual([{ y: 36, height: 16 }, { y: 52, height: 16 }]);
});
