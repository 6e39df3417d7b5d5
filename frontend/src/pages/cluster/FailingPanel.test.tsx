// @vitest-environment jsdom
import { afterEach, expect, it } from "vitest";
import { TestPage } from "../../testing/page";
import { FailingPanel } from "./FailingPanel";

const item = {
  loop: "limits", task: "enforce a job's max_cost or deadline", name: "#7 quick", cluster: "main", job: { number: 7, name: "quick" },
  since_at: "2026-11-22T11:00:00Z", last_at: "2026-11-22T11:59:00Z", next_attempt_at: "2026-11-22T12:09:00Z", failures: 12, error: "KeyError: 'nice'",
};

let page: TestPage;
afterEach(() => page.end());

async function show(results: object[]): Promise<void> {
  page = new TestPage((sent) => (sent.path.startsWith("failing-items") ? { body: { next: null, previous: null, results } } : undefined));
  await page.show(<FailingPanel />, "/cluster");
}

it("says what fails, how often, by what error, and leads to the job", async () => {
  await show([item, { ...item, loop: "prune", job: null, cluster: null, name: "table x" }]);
  expect(page.text).toContain("Fails to enforce a job's max_cost or deadline. First failure");
  expect(page.text).toContain("12 failures so far; next attempt");
  expect(page.text).toContain("KeyError: 'nice'");
  expect([...document.querySelectorAll("a")].map((link) => link.getAttribute("href"))).toEqual(["/jobs/7"]);
});

it("says so where nothing fails", async () => {
  await show([]);
  expect(page.text).toContain("No item fails");
});
