import { expect, test } from "vitest";
import { oneSample } from "./series";

test("one sample is said in words, and two are a line", () => {
  expect(oneSample([[1_700_000_000, 10, 26.8]], "steps/s")).toMatch(/^One sample so far: 26\.8 steps\/s at \d\d:\d\d:\d\d\.$/);
  expect(oneSample([[1_700_000_000, 10, 2.3]], "")).toMatch(/^One sample so far: 2\.30? at /);
  expect(oneSample([[1_700_000_000, 10, 26.8], [1_700_000_005, 20, 27]], "steps/s")).toBeNull();
  expect(oneSample([], "steps/s")).toBeNull();
});
