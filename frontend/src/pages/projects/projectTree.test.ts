import { expect, test } from "vitest";
import { totalsOf, treeOf } from "./projectTree";

const place = (key: string, parent: string | null, name = key) => ({ key, name, parent });

test("projects stand below the one above them, siblings by name", () => {
  const placed = treeOf([place("vision", "org", "Vision"), place("org", null), place("lidar", "vision"), place("audio", "org", "Audio"), place("apart", null)]);
  expect(placed.map((one) => [one.project.key, one.level])).toEqual([["apart", 0], ["org", 0], ["audio", 1], ["vision", 1], ["lidar", 2]]);
});

test("a project whose parent is not shown is outermost", () => {
  expect(treeOf([place("lidar", "unseen")]).map((one) => one.level)).toEqual([0]);
});

const held = (key: string, parent: string | null, spend: string, below: string, budget: string | null) => ({
  ...place(key, parent), gpus_allocated: 2, spend_month: spend, budget_month: budget,
  with_below: { gpus_allocated: 0, jobs_running: 0, jobs_queued: 0, spend_month: below },
});

test("nothing is counted twice, neither use nor a budget within a budget", () => {
  const totals = totalsOf([held("org", null, "10", "100", "400"), held("vision", "org", "60", "90", "100"), held("lidar", "vision", "30", "30", "50"), held("apart", null, "20", "20", "100")]);
  expect(totals).toEqual({ gpus: 8, spent: 120, share: 120 / 500 });
});

test("what has no budget is no part of one", () => {
  expect(totalsOf([held("free", null, "50", "50", null), held("zero", null, "1", "1", "0")]).share).toBeNull();
  expect(totalsOf([held("free", null, "50", "80", null), held("tight", "free", "30", "30", "60")]).share).toBe(0.5);
});
