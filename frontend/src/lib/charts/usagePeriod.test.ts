import { expect, test } from "vitest";
import { columnLabel, columnsOf, PERIODS, spanOf, stepOf } from "./usagePeriod";

const TODAY = "2026-03-02";

test("periods end today, but for last month", () => {
  expect(spanOf("7d", TODAY)).toEqual({ from: "2026-02-24", to: TODAY });
  expect(spanOf("30d", TODAY)).toEqual({ from: "2026-02-01", to: TODAY });
  expect(spanOf("month", TODAY)).toEqual({ from: "2026-03-01", to: TODAY });
  expect(spanOf("last-month", TODAY)).toEqual({ from: "2026-02-01", to: "2026-02-28" });
  expect(spanOf("last-month", "2026-01-05")).toEqual({ from: "2025-12-01", to: "2025-12-31" });
  expect(spanOf("year", TODAY)).toEqual({ from: "2026-01-01", to: TODAY });
});

test("own days are put in order, and one alone is enough", () => {
  expect(spanOf("own", TODAY, { from: "2026-02-10", to: "2026-01-10" })).toEqual({ from: "2026-01-10", to: "2026-02-10" });
  expect(spanOf("own", TODAY, { to: "2026-01-31" })).toEqual({ from: "2026-01-02", to: "2026-01-31" });
});

test("no period has a column twice, leaves one out, or has too many for a chart", () => {
  for (const { key } of PERIODS) {
    const span = spanOf(key, TODAY);
    const columns = columnsOf(span, stepOf(span));
    expect(new Set(columns).size).toBe(columns.length);
    expect([...columns].sort()).toEqual(columns);
    expect(span.from.startsWith(columns[0]!)).toBe(true);
    expect(span.to.startsWith(columns.at(-1)!)).toBe(true);
    expect(columns.length).toBeLessThanOrEqual(93);
  }
  expect(columnsOf({ from: "2024-11-15", to: "2026-02-01" }, "month")).toHaveLength(16);
  expect(stepOf({ from: "2024-11-15", to: "2026-02-01" })).toBe("month");
});

test("columns are named as people write them", () => {
  expect(columnLabel("2026-03-02")).toBe("2 Mar");
  expect(columnLabel("2026-03")).toBe("Mar 2026");
});
