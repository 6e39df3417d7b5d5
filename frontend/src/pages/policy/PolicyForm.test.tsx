// @vitest-environment jsdom
import { afterEach, expect, it, vi } from "vitest";
import type { PolicyInForce, PolicyInfo } from "../../api/types";
import { refusal, TestPage, type Sent } from "../../testing/page";
import { PolicyForm } from "./PolicyForm";

vi.mock("../../lib/highlight", () => ({ jobPaint: () => ({}) }));

const KIND = {
  name: "dqn_gpu", title: "DqnGPU", presets: [],
  schema: { properties: { oversubscription: { type: "number", title: "Oversubscription", default: 1.25, minimum: 1, maximum: 2 } } },
} as unknown as PolicyInfo;
const IN_FORCE = { name: "dqn_gpu", parameters: {}, changed_at: null } as unknown as PolicyInForce;
const EFFECT = { as_of: "2026-11-21T14:32:00Z", effects: [], affected: 0, starting: 0, variance: { before: null, after: null, bound: null } };

const asked = (sent: Sent) => (sent.body as { parameters: { oversubscription: number } } | undefined)?.parameters.oversubscription;
const answers = (sent: Sent) => {
  if (!sent.path.startsWith("policy")) return undefined;
  return (asked(sent) ?? 0) > 2 ? refusal("parameters.oversubscription", "at most 2") : { body: EFFECT };
};

let page: TestPage;
afterEach(() => page.end());

it("says at its field what is wrong with a parameter before it is applied, and no longer once it is right", async () => {
  page = new TestPage(answers);
  await page.show(<PolicyForm kind={KIND} inForce={IN_FORCE} onApplied={() => {}} />);
  expect(page.sent).toEqual([]); // as it is in force: there is nothing to ask
  await page.fill("Oversubscription", "3");
  await page.settle(300);
  expect(page.wrong("Oversubscription")).toContain("at most 2");
  await page.fill("Oversubscription", "1.5");
  await page.settle(300);
  expect(page.wrong("Oversubscription")).not.toContain("at most 2");
  expect(page.sent.map(asked)).toEqual([3, 1.5]); // and never what is in force
});

it("forgets what was refused when it was applied once something else stands there", async () => {
  page = new TestPage(answers);
  await page.show(<PolicyForm kind={KIND} inForce={IN_FORCE} onApplied={() => {}} />);
  await page.fill("Oversubscription", "3");
  await page.press("Apply");
  expect([page.wrong("Oversubscription"), page.text.includes("parameters.oversubscription at most 2")]).toEqual(["at most 2", true]);
  await page.fill("Oversubscription", "1.5");
  await page.settle(300);
  expect([page.wrong("Oversubscription"), page.text.includes("at most 2")]).toEqual(["1 to 2.", false]);
});
