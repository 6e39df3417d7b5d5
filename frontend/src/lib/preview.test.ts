import { expect, it } from "vitest";
import type { Partition } from "../api/types";
import type { ClusterState } from "./blanks";
import { roomFor, typesWithin } from "./preview";

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
