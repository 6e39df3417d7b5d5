// @vitest-environment jsdom
import { afterEach, expect, it, vi } from "vitest";
import type { Project, Session } from "../../api/types";
import { pageOf, refusal, TestPage, type Sent } from "../../testing/page";
import ProjectsPage from "./ProjectsPage";

vi.mock("../../shell/TopBar", () => ({ TopBar: () => null }));

const session = { user: { email: "ana@example.org", is_admin: false }, cluster: { gpus: 32 }, currency: "USD" } as unknown as Session;
const project = (key: string, name: string, changes: object = {}) => ({
  key, name, role: "member", parent: null, archived_at: null, members: 3, gpu_limit: null, budget_month: null, gpus_allocated: 2, jobs_running: 1, jobs_queued: 0, spend_month: "40.00",
  with_below: { gpus_allocated: 2, jobs_running: 1, jobs_queued: 0, spend_month: "40.00" }, ...changes,
}) as Project;
const vision = project("vision", "Vision", { role: "manager", budget_month: "200", with_below: { gpus_allocated: 4, jobs_running: 2, jobs_queued: 0, spend_month: "80.00" } });

let page: TestPage;
afterEach(() => page.end());

const lists = (sent: Sent) => {
  if (sent.path.includes("archived=true")) return pageOf(project("old", "Old", { archived_at: "2026-01-01T00:00:00Z" }));
  return sent.path.startsWith("projects?") ? pageOf(project("faces", "Faces", { parent: "vision" }), vision) : undefined;
};

it("opens with what the projects hold and spend together", async () => {
  page = new TestPage(lists);
  await page.show(<ProjectsPage session={session} />);
  expect(document.querySelector("h1")?.textContent).toBe("You are in 2 projects; together they have 4 of 32 GPUs and spent $80.00 this month, 40\u2009% of their budgets.");
  expect([...document.querySelectorAll("tbody tr a")].map((link) => link.textContent)).toEqual(["Vision", "Faces"]);
});

it("reads archived projects only when they are asked for", async () => {
  page = new TestPage(lists);
  await page.show(<ProjectsPage session={session} />);
  expect(page.text).not.toContain("Old");
  expect(page.sent.some((one) => one.path.includes("archived=true"))).toBe(false);
  await page.press("Show");
  expect(page.text).toContain("Old");
});

it("makes a project below one that I manage, and says at its field what is wrong", async () => {
  page = new TestPage((sent) => (sent.method === "POST" ? refusal("key", "is taken") : lists(sent)));
  await page.show(<ProjectsPage session={session} />);
  await page.press("New project");
  await page.fill("Name", "Lidar");
  await page.fill("Key", "faces");
  await page.press("Create");
  expect(page.changes).toEqual([{ path: "projects", method: "POST", body: { key: "faces", name: "Lidar", parent: "vision" } }]);
  expect(page.wrong("Key")).toBe("is taken");
  expect(page.wrong("Name")).toBeNull();
});
