// @vitest-environment jsdom
import { afterEach, expect, it, vi } from "vitest";
import { pageOf, refusal, TestPage, type Sent } from "../../testing/page";
import { PromoteDialog } from "./PromoteDialog";
import RolloutPage from "./RolloutPage";

vi.mock("../../shell/TopBar", () => ({ TopBar: () => null }));

const seen = { wait_p95_s: 600, slowdown_variance: null, utilisation: 0.5, waits: 12, ended: 0, samples: 9 };
const side = { gpus: 3, variance: 0.01, starting: 2, preempted: 0 };
const shadow = { rounds: 4, same: 1, skipped: 2, failed: 1, error: "Round 7: no plan after 20 s.", last_round: 9, different_jobs: 1.5, seconds: 0.02, live: side, candidate: { ...side, gpus: 2 } };
const ROLLOUT = {
  id: "r", number: 3, phase: "shadow", policy: "fifo_gang", parameters: { gang: "max" }, label: "fifo_gang (gang=max)", simulation: null, created_by: "root@example.org", created_at: "2026-11-24T10:00:00Z",
  bounds: {}, guard_s: 3600, least_jobs: 10, least_s: 600, prediction: seen, before: null, limits: null, promoted_by: null, promoted_at: null, guard_until: null, previous: null, problem: "",
  ended_by: null, ended_at: null, outcome: "", shadow, steps: [{ at: "2026-11-24T10:00:00Z", action: "rollout.shadow", by: "root@example.org", why: null }],
};
const LIVE = { ...ROLLOUT, phase: "live", promoted_at: "2026-11-24T11:00:00Z", guard_until: "2026-11-24T12:00:00Z", previous: { policy: "f_scheduling", parameters: { v_bound: 0.2 } }, limits: { wait_p95_s: 900, slowdown_variance: null, utilisation: 0.3 } };
const figures = { gpus: 3, running: 2, starting: 2, resized: 0, preempted: 0, variance: null, relative_throughput: null };
const decision = {
  id: 1, round: 5, at: "2026-11-24T10:01:00Z", last_round: 6, last_at: "2026-11-24T10:02:00Z", rounds: 2, seconds: 0.1, different: 1, elsewhere: 0, live: figures, candidate: { ...figures, starting: 1 }, moves: [],
  jobs: [{ number: 12, name: "late", project: "vision", now: null, live: { type: "k1", count: 2 }, candidate: null, moved_by_live: true, moved_by_candidate: false, later_s: null, why: "#11 is ahead." }],
};
const PROPOSAL = { policy: "f_scheduling", parameters: {}, prediction: seen, before: { ...seen, wait_p95_s: 60 }, limits: { wait_p95_s: 900, slowdown_variance: null, utilisation: 0.3 } };

let page: TestPage;
afterEach(() => page.end());

const answers = (rollout: unknown, changed: (sent: Sent) => { status?: number; body?: unknown } = () => ({ body: rollout })) => (sent: Sent) => {
  if (sent.method !== "GET") return changed(sent);
  if (sent.path === "policy") return { body: { name: "f_scheduling", parameters: {}, notes: [] } };
  if (sent.path.includes("/decisions")) return pageOf(decision);
  if (sent.path.includes("/checks")) return { body: { checks: [{ ...seen, at: "2026-11-24T11:00:15Z", broken: ["wait_p95_s"] }] } };
  if (sent.path.startsWith("rollouts/proposal")) return { body: PROPOSAL };
  return sent.path.startsWith("rollouts/") ? { body: rollout } : undefined;
};

it("says what the shadow would have done, and what it missed", async () => {
  page = new TestPage(answers(ROLLOUT));
  await page.show(<RolloutPage />, "/lab/rollouts/r");
  expect(page.text).toContain("fifo_gang (gang=max) decides in the shadow of f_scheduling");
  expect(page.text).toContain("It has looked on at 4 rounds; in 25\u2009% of them every job would have had the same. 2 rounds went by while it was busy.");
  expect(page.text).toContain("1 round without an answer; the last: Round 7: no plan after 20 s.");
  expect(page.text).toContain("Rounds 5 to 6");
  expect(page.text).toContain("#12 late");
  expect(page.text).toContain("#11 is ahead.");
  await page.press("Take out of the shadow");
  await page.press("Take it out");
  expect(page.changes.map((sent) => sent.path)).toEqual(["rollouts/r/cancel"]);
});

it("shows what is measured against its bounds, and asks before it rolls back", async () => {
  page = new TestPage(answers(LIVE));
  await page.show(<RolloutPage />, "/lab/rollouts/r");
  expect(page.text).toContain("is in force under guard");
  expect(page.text).toContain("f_scheduling comes back by itself");
  expect(page.text).toContain("p95 wait broken");
  expect(page.text).toContain("at most 15\u2009min");
  expect(page.text).toContain("not watched");
  expect(page.text).toContain("at least 30.0\u2009%");
  await page.press("Roll back now");
  expect(page.changes).toEqual([]);
  await page.press("Roll back");
  expect(page.changes.map((sent) => sent.path)).toEqual(["rollouts/r/roll-back"]);
});

it("says who ended it and why, and offers nothing more", async () => {
  page = new TestPage(answers({ ...LIVE, phase: "rolled_back", ended_at: "2026-11-24T11:30:00Z", outcome: "The 95th percentile of waits was 1,000 s, above 900 s." }));
  await page.show(<RolloutPage />, "/lab/rollouts/r");
  expect(page.text).toContain("was rolled back to f_scheduling. The 95th percentile of waits was 1,000 s, above 900 s. By the portal itself.");
  expect(page.text).not.toContain("Roll back now");
});

it("offers bounds from the prediction, and says what is wrong at its field", async () => {
  page = new TestPage(answers(ROLLOUT, () => refusal("bounds.utilisation.least", "must be 1 at most")));
  await page.show(<PromoteDialog label="fifo_gang" source={{ rollout: "r" }} onDone={() => undefined} onClose={() => undefined} />);
  expect(page.text).toContain("Predicted: 10\u2009min; in as long a time before now: 1\u2009min.");
  const fields = [...document.querySelectorAll<HTMLInputElement>("input")].map((field) => field.value);
  expect(fields).toEqual(["24", "10", "15", "", "30"]);
  await page.press("Put in force under guard");
  expect(page.changes[0]?.body).toEqual({ guard_s: 86_400, least_jobs: 10, bounds: { wait_p95_s: { most: 900 }, slowdown_variance: null, utilisation: { least: 0.3 } } });
  expect(page.text).toContain("must be 1 at most");
  expect(document.querySelector("[aria-invalid=true]")).not.toBeNull();
});
