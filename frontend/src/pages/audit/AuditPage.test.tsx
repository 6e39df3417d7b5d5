// @vitest-environment jsdom
import { afterEach, expect, it, vi } from "vitest";
import { pageOf, TestPage } from "../../testing/page";
import AuditPage from "./AuditPage";

vi.mock("../../shell/TopBar", () => ({ TopBar: () => null }));

const entry = { id: 4, position: 4, at: "2026-11-20T10:00:00Z", actor: "ana@example.org", action: "project.member", target: "vision", detail: { role: "viewer" }, address: "10.0.0.1", credential: null, request_id: null, hash: null };

let page: TestPage;
afterEach(() => page.end());

it("asks and exports what the address narrows it to", async () => {
  page = new TestPage((sent) => (sent.path.startsWith("audit?") ? pageOf(entry) : undefined));
  await page.show(<AuditPage />, "/admin/audit?action=project.&target=vision&from=2026-11-20&to=2026-11-20");
  const asked = new URLSearchParams(page.sent[0]?.path.split("?")[1]);
  expect([asked.get("action"), asked.get("target"), asked.get("actor")]).toEqual(["project.", "vision", null]);
  expect(asked.get("from_at")).toBe(new Date(2026, 10, 20).toISOString());
  expect(asked.get("to_at")).toBe(new Date(2026, 10, 21).toISOString());
  const links = [...document.querySelectorAll<HTMLAnchorElement>("a[download]")].map((link) => link.getAttribute("href") ?? "");
  expect(links.map((link) => new URLSearchParams(link.split("?")[1]).get("format"))).toEqual(["csv", "jsonl"]);
  for (const link of links) expect(link).toContain("/api/v1/audit/export?action=project.&target=vision");
  expect(page.text).toContain("role: viewer");
});

it("narrows to what somebody did, and shows all again", async () => {
  page = new TestPage((sent) => (sent.path.includes("actor=") ? undefined : pageOf(entry)));
  await page.show(<AuditPage />);
  await page.press("ana@example.org");
  expect(page.sent.at(-1)?.path).toBe("audit?actor=ana%40example.org");
  await page.press("Show all");
  expect(page.text).toContain("project.member");
});
