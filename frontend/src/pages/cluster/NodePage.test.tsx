// @vitest-environment jsdom
import { Route, Routes } from "react-router";
import { afterEach, expect, it, vi } from "vitest";
import type { Session } from "../../api/types";
import { TestPage } from "../../testing/page";
import NodePage from "./NodePage";

vi.mock("../../shell/TopBar", () => ({ TopBar: () => null }));
vi.mock("./HeldChart", () => ({ default: () => null }));
vi.mock("../../lib/highlight", () => ({ jobMark: () => ({}), jobPaint: () => ({}) }));

const mine = { number: 7, name: "quick", project: "Vision" };
const others = { number: 8, name: null, project: "Speech" };
const gpu = (index: number, job: object | null) => ({ index, uuid: `u${index}`, memory_mib: 12_288, state: job ? "held" : "free", kind: job ? "running" : null, job, parts: [] });
const node = {
  name: "oak-01", type: "titan_xp", gpus: 3, emulated: true, schedulable: true, drained: false, lost: false, cpus: 16, memory_mib: 65_536, last_seen_at: "2026-11-22T11:59:00Z", drain: null,
  check: { state: null, open: null, last: null, failures: 0, next_at: null, waived_at: null, waived_by: null },
  taken: [], accelerators: [gpu(0, mine), gpu(1, others), gpu(2, null)],
  jobs: [{ job: mine, gpus: 1, share_percent: 100, since_at: "2026-11-22T11:00:00Z", busy_part: 0.83 }, { job: others, gpus: 1, share_percent: 50, since_at: null, busy_part: null }], busy_part: 0.41,
  use: { from_at: "2026-11-21T12:00:00Z", to_at: "2026-11-22T12:00:00Z", bucket_s: 1800, allocated: [[1, 0.5]], allocated_part: 0.5 },
  faults: [{ job: mine, attempt: 2, at: "2026-11-22T10:00:00Z", reason: "runner_lost", text: "The runner was lost." }, { job: others, attempt: 1, at: "2026-11-22T09:00:00Z", reason: "signal", text: null }],
  faults_by_reason: { runner_lost: 1, signal: 1 },
  events: [{ id: 1, at: "2026-11-20T09:00:00Z", kind: "node_joined", text: "oak-01 joined with 3 × titan_xp" }],
};

let page: TestPage;
afterEach(() => page.end());

async function show(isAdmin: boolean, changes: object = {}, status = 200): Promise<void> {
  const session = { user: { email: "root@example.org", is_admin: isAdmin } } as unknown as Session;
  page = new TestPage((sent) => {
    if (sent.path === "nodes/oak-01") return { status, body: status === 200 ? { ...node, ...changes } : { status, detail: "Not found." } };
    return sent.path.includes("drain-preview") ? { body: { deadline_at: null, jobs: [] } } : undefined;
  });
  await page.show(<Routes><Route path="/cluster/nodes/:name" element={<NodePage session={session} />} /></Routes>, "/cluster/nodes/oak-01");
}
const links = () => [...document.querySelectorAll("a")].map((link) => link.getAttribute("href"));

it("leads to one's own jobs, and says of others' no more than their number", async () => {
  await show(false);
  expect(page.text).toContain("2 of 3 GPUs of oak-01 are in use");
  expect(links().filter((link) => link === "/jobs/7")).toHaveLength(2);
  expect(links()).not.toContain("/jobs/8");
  expect(page.text).toContain("assigned, not there yet");
  expect([...document.querySelectorAll("[data-l=Busy]")].map((cell) => cell.textContent?.replace(/\s/g, " "))).toEqual(["83 %", "–"]);
  expect(page.text).toMatch(/41\s%/);
  expect(page.text).toContain("The runner was lost.");
  expect(page.text).toContain("1 signal");
  expect(page.text).toContain("oak-01 joined with 3 × titan_xp");
  expect(document.querySelectorAll("button")).toHaveLength(0);
});

it("lets administrators drain and resume", async () => {
  await show(true);
  await page.press("Drain");
  await page.press("Drain");
  expect(page.changes[0]?.path).toBe("nodes/oak-01/drain");
  await page.end();
  await show(true, { drained: true, schedulable: false, drain: { state: "drained", since_at: null, deadline_at: null, reason: "new fans", by: "root@example.org", jobs: [] } });
  expect(page.text).toContain("new fans");
  expect(() => page.button("Drain")).toThrow();
  await page.press("Resume");
  expect(page.changes).toEqual([{ path: "nodes/oak-01/resume", method: "POST", body: undefined }]);
});

it("shows what the last check found, and lets administrators check again or use the node anyway", async () => {
  const items = [{ subject: "runner", result: "passed", seen: "it starts", fix: "" }, { subject: "free space", result: "failed", seen: "3 MiB", fix: "make room" }];
  const last = { cause: "joined", asked_at: "2026-11-22T11:00:00Z", asked_by: null, begun_at: "2026-11-22T11:00:00Z", ended_at: "2026-11-22T11:00:00Z", passed: false, items };
  const failed = { schedulable: false, check: { ...node.check, state: "failed", last, failures: 1 } };
  await show(false, failed);
  for (const words of ["oak-01 failed its check", "3 MiB", "To do: make room", "(it joined)"]) expect(page.text).toContain(words);
  expect(page.text.indexOf("free space")).toBeLessThan(page.text.indexOf("runner"));
  expect(document.querySelectorAll("button")).toHaveLength(0);
  await page.end();
  await show(true, failed);
  await page.press("Check now");
  await page.press("Use anyway");
  expect(page.changes.map((one) => one.path)).toEqual(["nodes/oak-01/check", "nodes/oak-01/use-anyway"]);
  await page.end();
  await show(true, { check: { ...node.check, open: { ...last, ended_at: null, items: [] } } });
  expect(page.button("Check now").disabled).toBe(true);
});

it("says in words what is not there", async () => {
  await show(false, { jobs: [], faults: [], faults_by_reason: {}, events: [], accelerators: [gpu(0, null), gpu(1, null), gpu(2, null)] });
  for (const words of ["No job uses oak-01", "No job has a GPU of this node", "No run failed on this node.", "Nothing has happened to it."]) expect(page.text).toContain(words);
  await page.end();
  await show(false, {}, 404);
  expect(page.text).toContain("There is no node oak-01.");
  expect(links()).toContain("/cluster");
});
