import { expect, it } from "vitest";
import type { AcceleratorState, NodeState } from "../../api/types";
import { busyOf, densityFor, holdersOf, nodeBlocks, partWords } from "./blocks";

function node(cells: AcceleratorState[], extra: Partial<NodeState> = {}): NodeState {
  return {
    type: "h200", gpus: cells.length, emulated: false, schedulable: true, drained: false, lost: false, memory_mib: 0, cpus: 0, host_memory_mib: 0, allocated: 0, others: 0, price_per_hour: "1",
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

it("shows GPUs that others have apart from free ones", () => {
  const blocks = nodeBlocks(node([held(7), free, { state: "others" }, { state: "others" }]));
  expect(blocks.map((block) => [block.size, block.job, block.face])).toEqual([[1, 7, "held"], [1, null, "free"], [2, null, "others"]]);
});

it("shows a lost node as lost and a drained one as draining", () => {
  expect(nodeBlocks(node([held(7), free], { lost: true })).map((block) => block.face)).toEqual(["lost"]);
  expect(nodeBlocks(node([held(7), free], { schedulable: false })).map((block) => block.face)).toEqual(["held", "draining"]);
});

const parts: AcceleratorState = {
  state: "held", job: 12, kind: "running", free_percent: 25,
  parts: [{ job: 12, kind: "running", share_percent: 50 }, { job: 15, kind: "launching", share_percent: 25 }],
};

it("keeps a GPU that is held in parts to itself, with each part and what is left", () => {
  const blocks = nodeBlocks(node([held(12), parts, parts, free]));
  expect(blocks.map((block) => [block.from, block.size, block.job, block.face, block.parts.length])).toEqual([[0, 1, 12, "held", 0], [1, 1, null, "shared", 2], [2, 1, null, "shared", 2], [3, 1, null, "free", 0]]);
  expect(partWords(blocks[1]!)).toBe("#12 50\u2009%, #15 25\u2009%, 25\u2009% free");
  expect(partWords(nodeBlocks(node([{ ...parts, free_percent: 0 }]))[0]!)).toBe("#12 50\u2009%, #15 25\u2009%");
});

it("shows what is left of a GPU on a drained node as draining, and nothing of a lost one", () => {
  expect(partWords(nodeBlocks(node([parts], { schedulable: false }))[0]!)).toContain("25\u2009% draining");
  expect(nodeBlocks(node([parts], { lost: true })).map((block) => block.face)).toEqual(["lost"]);
});

it("counts a GPU that is partly held as one in use, and names all who are on it", () => {
  expect(busyOf(node([parts, held(7), free]))).toBe(2);
  expect([parts, held(7), free].map((gpu) => holdersOf(gpu).map((one) => [one.job, one.share_percent]))).toEqual([[[12, 50], [15, 25]], [[7, 100]], []]);
});

it("never spans two lines", () => {
  expect(nodeBlocks(node(Array.from({ length: 8 }, () => held(1))), 4).map((block) => block.size)).toEqual([4, 4]);
});

it("folds above a hundred GPUs and becomes a heat map above a thousand", () => {
  expect([100, 101, 1000, 1001].map(densityFor)).toEqual(["full", "fold", "fold", "heat"]);
});
