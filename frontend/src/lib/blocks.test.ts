import { expect, it } from "vitest";
import type { AcceleratorState, NodeState } from "../api/types";
import { densityFor, nodeBlocks } from "./blocks";

function node(cells: AcceleratorState[], extra: Partial<NodeState> = {}): NodeState {
  return {
    type: "h200", gpus: cells.length, emulated: false, schedulable: true, drained: false, lost: false, memory_mib: 0, held: 0, price_per_hour: "1",
    accelerators: Object.fromEntries(cells.map((cell, i) => [String(i), cell])), ...extra,
  };
}

const held = (job: number, kind: AcceleratorState["kind"] = "running"): AcceleratorState => ({ state: "held", job, kind });
const free: AcceleratorState = { state: "free" };

it("joins neighbours of one job in one condition", () => {
  const blocks = nodeBlocks(node([held(7), held(7), held(8), free, free, held(8)]));
  expect(blocks.map((block) => [block.from, block.size, block.job, block.face])).toEqual([[0, 2, 7, "held"], [2, 1, 8, "held"], [3, 2, null, "free"], [5, 1, 8, "held"]]);
});

it("keeps protected and launching GPUs apart from running ones", () => {
  const blocks = nodeBlocks(node([held(7, "protected"), held(7), held(7, "launching")]));
  expect(blocks.map((block) => [block.protected, block.face])).toEqual([[true, "held"], [false, "held"], [false, "moving"]]);
});

it("shows a lost node as lost and a drained one as draining", () => {
  expect(nodeBlocks(node([held(7), free], { lost: true })).map((block) => block.face)).toEqual(["lost"]);
  expect(nodeBlocks(node([held(7), free], { schedulable: false })).map((block) => block.face)).toEqual(["held", "draining"]);
});

it("never spans two lines", () => {
  expect(nodeBlocks(node(Array.from({ length: 8 }, () => held(1))), 4).map((block) => block.size)).toEqual([4, 4]);
});

it("folds above a hundred GPUs and becomes a heat map above a thousand", () => {
  expect([100, 101, 1000, 1001].map(densityFor)).toEqual(["full", "fold", "fold", "heat"]);
});
