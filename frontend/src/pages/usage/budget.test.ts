import { expect, test } from "vitest";
import type { Limit } from "../../api/types";
import { byUrgency, courseOf } from "./budget";

const november = (used: string, changes: object = {}) => ({ limit: "300", used, reached: false, period_starts_at: "2026-11-01T00:00:00Z", period_ends_at: "2026-12-01T00:00:00Z", ...changes });
const on = (day: number) => new Date(Date.UTC(2026, 10, 1 + day));

test("a pace that is too fast says on which day the budget is used up", () => {
  expect(courseOf(november("150"), on(10))).toEqual({ kind: "short", at: on(20) });
});

test("a pace that lasts says how much is used at the end", () => {
  expect(courseOf(november("50"), on(10))).toEqual({ kind: "enough", share: 0.5 });
  expect(courseOf(november("100"), on(10))).toEqual({ kind: "enough", share: 1 });
  expect(courseOf(november("0"), on(15))).toEqual({ kind: "enough", share: 0 });
});

test("nothing is claimed before a tenth of the period has passed", () => {
  expect(courseOf(november("200"), on(2.9))).toEqual({ kind: "early" });
  expect(courseOf(november("200"), on(3))?.kind).toBe("short");
});

test("what is reached needs no line", () => {
  expect(courseOf(november("300"), on(1))).toEqual({ kind: "reached" });
  expect(courseOf(november("299", { reached: true }), on(15))).toEqual({ kind: "reached" });
  expect(courseOf(november("0", { limit: "0" }), on(15))).toEqual({ kind: "reached" });
});

test("a limit without a period has no course", () => {
  expect(courseOf(november("1", { period_starts_at: null, period_ends_at: null }), on(3))).toBeNull();
});

test("what is reached stands first, then the fullest", () => {
  const row = (id: number, used_percent: number, reached = false) => ({ id, used_percent, reached }) as unknown as Limit;
  expect(byUrgency([row(1, 20), row(2, 95), row(3, 90, true), row(4, 95)]).map((one) => one.id)).toEqual([3, 2, 4, 1]);
});
