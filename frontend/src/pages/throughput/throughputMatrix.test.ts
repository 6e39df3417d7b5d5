import { expect, it } from "vitest";
import type { CurvePoint, ModelType } from "../../api/types";
import { byCount, byType, cellOf, chartOf, countsOf, matching, sayCell, tally, typesOf } from "./throughputMatrix";

const point = (count: number, stepsPerS: number, source: CurvePoint["source"], more: Partial<CurvePoint> = {}): CurvePoint =>
  ({ count, steps_per_s: stepsPerS, source, age_s: null, samples: 0, relative_error: null, ...more });

const curve = (steps: number[], points: CurvePoint[]): ModelType["curves"][string] =>
  ({ steps_per_s: steps, source: points[0]?.source ?? "catalogue", age_s: null, samples: 0, points });

const resnet = {
  name: "resnet50", title: "ResNet-50", description: "", default_batch_size: 64, runs_seen: 3,
  curves: {
    h200: curve([10, 18, 18, 30], [point(1, 10, "measured", { age_s: 7_200, samples: 47 }), point(2, 18, "catalogue"), point(4, 30, "catalogue")]),
    v100: curve([4, 7], [point(1, 4, "estimated", { relative_error: 0.3 }), point(2, 7, "estimated")]),
  },
} as ModelType;
const lm = { ...resnet, name: "tiny_lm", title: "Small language model", curves: { a100: curve([0, 5], [point(1, 0, "catalogue"), point(2, 5, "catalogue")]) } } as ModelType;

it("says of a cell its number, what that rests on and how it compares", () => {
  const cell = cellOf(resnet, "v100", 1)!;
  expect([cell.stepsPerS, cell.source, cell.relative, cell.best]).toEqual([4, "estimated", 0.4, false]);
  expect(sayCell(cell)).toBe("resnet50 on 1 GPU of V100: 4.00 steps/s, estimated, ±30\u2009%; 0.400 of the best type on as many");
  const best = cellOf(resnet, "h200", 1)!;
  expect(best.best).toBe(true);
  expect(sayCell(best)).toContain("measured, 2\u2009h old, 47 samples; the best type");
});

it("tells what is drawn between others from what is known", () => {
  const cell = cellOf(resnet, "h200", 3)!;
  expect([cell.stepsPerS, cell.between]).toEqual([18, true]);
  expect(sayCell(cell)).toContain("drawn between other counts");
});

it("knows nothing of other types and of more GPUs than the curve has", () => {
  expect(cellOf(resnet, "k80", 1)).toBeNull();
  expect(cellOf(resnet, "v100", 3)).toBeNull();
});

it("says where so many GPUs cannot run it", () => {
  const cell = cellOf(lm, "a100", 1)!;
  expect([cell.best, cell.relative]).toEqual([false, null]);
  expect(sayCell(cell)).toBe("tiny_lm does not run on 1 GPU of A100");
});

it("lays out a matrix by type and one by count", () => {
  const types = typesOf([resnet, lm]);
  expect(types).toEqual(["a100", "h200", "v100"]);
  const rows = byType([resnet, lm], types, 2);
  expect(rows.map((row) => row.cells.map((cell) => cell?.stepsPerS ?? null))).toEqual([[null, 18, 7], [5, null, null]]);
  expect(tally(rows)).toBe("2 catalogue, 1 estimated, 3 not known");
  expect(countsOf([resnet, lm])).toEqual([1, 2, 4]);
  expect(countsOf([resnet, lm], "v100")).toEqual([1, 2]);
  expect(byCount([resnet], "h200", [1, 2, 4])[0]?.cells.map((cell) => cell?.best)).toEqual([true, true, true]);
});

it("bounds the counts of long curves, and ends with the last", () => {
  const long = { ...resnet, curves: { h200: curve(Array.from({ length: 1000 }, (_, i) => i), [point(1, 1, "catalogue")]) } } as ModelType;
  expect(countsOf([long])).toEqual([1, 2, 4, 8, 16, 32, 64, 1000]);
  expect(countsOf([])).toEqual([1]);
  expect(chartOf(long, "h200")[0]?.steps).toHaveLength(128);
});

it("finds programs by name or title", () => {
  expect(matching([resnet, lm], "language").map((model) => model.name)).toEqual(["tiny_lm"]);
  expect(matching([resnet, lm], "RES 50").map((model) => model.name)).toEqual(["resnet50"]);
  expect(matching([resnet, lm], " ")).toHaveLength(2);
});

it("draws the chosen type first", () => {
  expect(chartOf(resnet, "v100").map((one) => one.type)).toEqual(["v100", "h200"]);
});
