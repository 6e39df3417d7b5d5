import { expect, test } from "vitest";
import { costMeter } from "./CostCard";

test("without a limit and an estimate nothing is measured", () => {
  expect(costMeter(3, null, null)).toBeNull();
});

test("a cost is measured by its limit, else by what it is expected to become", () => {
  expect(costMeter(2, null, 8)).toEqual({ soFar: 0.25, estimated: 0.25, limit: 1 });
  expect(costMeter(12, null, 8)?.limit).toBeCloseTo(2 / 3);
  const open = costMeter(1, 4, null);
  expect(open?.soFar).toBeCloseTo(1 / 4.32);
  expect(open?.limit).toBeNull();
});
