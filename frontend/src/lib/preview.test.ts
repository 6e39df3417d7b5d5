import { expect, it } from "vitest";
import type { Partition } from "../api/types";
import type { ClusterState } from "./blanks";
import { costBasis, roomFor, typesWithin, verdict } from "./preview";

const gpu = { state: "free" };
const node = (type: string) => ({ type, lost: false, schedulable: true, gpus: 2, accelerators: { 0: gpu, 1: { ...gpu, job: "j" } } });
const cluster = { nodes: { a: node("k1"), b: node("k1"), c: node("k2") } } as unknown as ClusterState;
const part = (name: string, more: Partial<Partition>) => ({ name, nodes: [], accelerator_types: [], is_default: false, ...more }) as unknown as Partition;
const day = part("day", { nodes: ["a"] });

it("counts what is free on the types allowed", () => {
  expect(roomFor(["k1"], cluster, [], undefined)).toEqual({ free: 2, bestNode: 1, total: 4 });
});

it("counts the nodes of the partition that the file names, by name or by type", () => {
  expect(roomFor(["k1", "k2"], cluster, [day], "day").total).toBe(2);
  expect(roomFor(["k1", "k2"], cluster, [day, part("fast", { accelerator_types: ["k2"], nodes: ["b"] })], "fast").total).toBe(4);
});

it("counts those of the default, or of no partition, where the file names none", () => {
  expect(roomFor(["k1", "k2"], cluster, [{ ...day, is_default: true }], undefined).total).toBe(2);
  expect(roomFor(["k1", "k2"], cluster, [day], undefined).total).toBe(4);
});

it("offers the types that nodes of the partition have", () => {
  expect(typesWithin(["k1", "k2"], cluster, [day], "day")).toEqual(["k1"]);
  expect(typesWithin(["k1", "k2"], cluster, [part("fast", { accelerator_types: ["k2"] })], "fast")).toEqual(["k2"]);
  expect(typesWithin(["k1", "k2"], cluster, [part("all", { nodes: ["a", "b"], is_default: true })], undefined)).toEqual(["k1"]);
  expect(typesWithin(["k1", "k2"], cluster, [], undefined)).toEqual(["k1", "k2"]);
  expect(typesWithin(["k1"], null, [day], "day")).toEqual(["k1"]);
});

const ask = { model: null, steps: 10, min: 1, max: 2, types: ["k1"] };
const free = { free: 2, bestNode: 2, total: 4 };
const limit = "The limit of 1 running job on project Vision is reached: 1 in use.";

it("says that a limit refuses the job where there would be room", () => {
  expect(verdict(ask, free, 0, { refused_by: [limit], waits_for: [] })).toEqual({ tone: "bad", title: "A limit refuses it now", text: limit });
  expect(verdict(ask, free, 0, { refused_by: [limit, limit], waits_for: [limit] }).title).toBe("Two limits refuse it now");
});

it("says that it will wait for a limit, unless it could not start at all", () => {
  const waits = { refused_by: [], waits_for: [limit] };
  expect(verdict(ask, free, 0, waits)).toEqual({ tone: "warn", title: "It will wait for a limit", text: `${limit} It can be submitted and starts when the limit lets it.` });
  expect(verdict(ask, { free: 0, bestNode: 0, total: 0 }, 0, waits).title).toBe("It could not start here");
  expect(verdict(ask, free, 0, { refused_by: [], waits_for: [] }).title).toBe("GPUs are free for it now");
});

it("names the discount, whose it is, and of how many jobs each amount is", () => {
  expect(costBasis({ jobs: 1, discount: null })).toBe("at today's rates, without a discount");
  expect(costBasis({ jobs: 3, discount: { percent: "12.5", project: "lab", name: "Lab" } })).toBe("each of 3 jobs, at today's rates, less 12.5\u2009% discount of project Lab");
});
