// @vitest-environment jsdom
import { afterEach, expect, it, vi } from "vitest";
import type { Project } from "../../api/types";
import { TestPage, type Sent } from "../../testing/page";
import { GuaranteeForm } from "./GuaranteeForm";
import { LimitForm } from "./LimitForm";

const vision = { key: "vision", name: "Vision", role: "manager", archived_at: null } as Project;
const answers = (sent: Sent) => (sent.path.startsWith("accelerator-types") ? { body: [] } : sent.method === "GET" ? undefined : { status: 201, body: {} });

let page: TestPage;
afterEach(() => page.end());

it("is of the project that is shown, though projects come after the dialog was opened", async () => {
  page = new TestPage(answers);
  const form = (projects: Project[]) => <LimitForm limit={null} projects={projects} isAdmin currency="USD" project="vision" onClose={vi.fn()} />;
  await page.show(form([]));
  await page.show(form([vision]));
  await page.fill("At most", "4");
  await page.press("Save");
  expect(page.changes.map((one) => one.body)).toEqual([expect.objectContaining({ project: "vision", user: null, limit: "4" })]);
});

it("guarantees to a project that comes after the dialog was opened", async () => {
  page = new TestPage(answers);
  const form = (choices: Project[]) => <GuaranteeForm guarantee={null} choices={choices} project="vision" onClose={vi.fn()} />;
  await page.show(form([]));
  await page.show(form([vision]));
  await page.fill("GPUs", "4");
  await page.press("Save");
  expect(page.changes.map((one) => one.path)).toEqual(["projects/vision/guarantee"]);
});
