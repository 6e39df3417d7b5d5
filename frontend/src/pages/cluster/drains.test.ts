import { expect, it } from "vitest";
import type { ClusterNode, DrainedJob } from "../../api/types";
import { consequences, deadlineOf, drainedNodes, inOrder, lostBy } from "./drains";

const now = new Date(2026, 10, 22, 12, 0);

function job(number: number, outcome: DrainedJob["outcome"], end: string | null = null): DrainedJob {
  return { job: { number, name: null, project: "Vision" }, gpus: 1, outcome, expected_end_at: end, text: null };
}

function node(name: string, state: "draining" | "drained" | null, deadline: string | null = null): ClusterNode {
  return { name, drain: state && { state, since_at: null, deadline_at: deadline, reason: "", by: null, jobs: [] } } as unknown as ClusterNode;
}

it("turns a choice into a deadline", () => {
  expect(deadlineOf("now", "", now)).toBeNull();
  expect(deadlineOf("1h", "", now)).toEqual(new Date(2026, 10, 22, 13, 0));
  expect(deadlineOf("4h", "", now)).toEqual(new Date(2026, 10, 22, 16, 0));
});

it("means tomorrow by tonight once the evening is there", () => {
  expect(deadlineOf("tonight", "", now)).toEqual(new Date(2026, 10, 22, 22, 0));
  expect(deadlineOf("tonight", "", new Date(2026, 10, 22, 21, 30))).toEqual(new Date(2026, 10, 23, 22, 0));
});

it("takes no time that is missing or past", () => {
  expect(deadlineOf("own", "", now)).toBeUndefined();
  expect(deadlineOf("own", "2026-11-22T11:59", now)).toBeUndefined();
  expect(deadlineOf("own", "2026-11-23T08:00", now)).toEqual(new Date(2026, 10, 23, 8, 0));
});

it("says what becomes of those who are there", () => {
  expect(consequences([])).toBe("No job is there.");
  expect(consequences([job(1, "moves")])).toBe("1 job there: 1 moves with a checkpoint.");
  const jobs = [job(1, "ends"), job(2, "moves"), job(3, "moves"), job(4, "lost"), job(5, null)];
  expect(consequences(jobs)).toBe("5 jobs there: 1 ends there, 2 move with checkpoints, 1 will be lost, 1 of other projects.");
  expect(lostBy(jobs)).toBe(1);
});

it("lists what is lost first, then by the end", () => {
  const jobs = [job(1, null), job(2, "moves"), job(3, "ends", "2026-11-22T13:00:00Z"), job(4, "lost")];
  expect(inOrder(jobs).map((one) => one.job.number)).toEqual([4, 3, 2, 1]);
});

it("lists nodes that still have jobs first, the next deadline first", () => {
  const nodes = [node("e", null), node("d", "drained"), node("c", "draining"), node("b", "draining", "2026-11-22T15:00:00Z"), node("a", "draining", "2026-11-22T14:00:00Z")];
  expect(drainedNodes(nodes).map((one) => one.name)).toEqual(["a", "b", "c", "d"]);
});
