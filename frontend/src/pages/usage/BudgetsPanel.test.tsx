// @vitest-environment jsdom
import { afterEach, expect, it } from "vitest";
import { pageOf, TestPage } from "../../testing/page";
import { BudgetsPanel } from "./BudgetsPanel";

const DAY = 86_400_000;
const moments = (passed: number) => ({ period_starts_at: new Date(Date.now() - passed * DAY).toISOString(), period_ends_at: new Date(Date.now() + (30 - passed) * DAY).toISOString() });
const budget = (id: number, used: number, passed: number, changes: object = {}) => ({
  id, name: "Money per month", level: `project P${id}`, project: "p", user: null, kind: "money", accelerator_type: null, period: "month", limit: "100", used: String(used), hard: false, used_percent: used, reached: false, warned_at: null, reached_at: null,
  ...moments(passed), ...changes,
});

let page: TestPage;
afterEach(() => page.end());

it("says of each budget how long it lasts, the fullest first", async () => {
  page = new TestPage(() => pageOf(budget(1, 20, 10), budget(2, 90, 15), budget(3, 9, 1), budget(4, 100, 20, { reached: true, hard: true })));
  await page.show(<BudgetsPanel project="vision" currency="USD" />);
  expect(page.sent[0]?.path).toBe("budgets?project=vision&limit=200");
  const rows = [...document.querySelectorAll("tbody tr")].map((row) => row.textContent ?? "");
  expect(rows.map((row) => /P\d/.exec(row)?.[0])).toEqual(["P4", "P2", "P1", "P3"]);
  expect(rows[0]).toContain("used up, jobs suspended");
  expect(rows[1]).toMatch(/over 80 %.*used up /);
  expect(rows[2]).toContain("60\u2009% at its end");
  expect(rows[3]).toContain("too early to say");
});

it("says that there is no budget", async () => {
  page = new TestPage(() => undefined);
  await page.show(<BudgetsPanel project="" currency="USD" />);
  expect(page.text).toContain("No budget of money or GPU-hours binds your projects.");
});
