import { expect, test } from "vitest";
import { columnTicks, stack } from "./stack";

test("the highest row is the sum of all, whatever is missing", () => {
  expect(stack([[1, 2, null], [null, 3, 4]])).toEqual([[1, 2, 0], [1, 5, 4]]);
  expect(stack([])).toEqual([]);
  expect(stack([[], [2, 3]])).toEqual([[], [2, 3]]);
});

test("ticks are within the columns and no more than asked for", () => {
  for (const columns of [0, 1, 5, 31, 93]) {
    for (const most of [0, 1, 4, 12]) {
      const ticks = columnTicks(columns, most);
      expect(ticks.length).toBeLessThanOrEqual(Math.max(1, most));
      expect(ticks.every((at) => at < columns)).toBe(true);
    }
  }
});
