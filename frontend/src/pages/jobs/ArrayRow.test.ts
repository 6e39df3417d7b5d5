import { expect, test } from "vitest";
import { arrayCounts } from "./ArrayRow";

test("an array is counted by state", () => {
  const found = arrayCounts({ succeeded: 3, running: 2, queued: 4, failed: 1 });
  expect(Object.fromEntries(found.states)).toEqual({ queued: 4, running: 2, succeeded: 3, failed: 1 });
  expect(found).toMatchObject({ ended: 4, size: 10 });
  expect(arrayCounts({})).toEqual({ states: [], ended: 0, size: 0 });
});
