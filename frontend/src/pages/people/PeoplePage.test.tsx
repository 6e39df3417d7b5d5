// @vitest-environment jsdom
import { afterEach, expect, it, vi } from "vitest";
import type { Session } from "../../api/types";
import { pageOf, TestPage } from "../../testing/page";
import PeoplePage from "./PeoplePage";

vi.mock("../../shell/TopBar", () => ({ TopBar: () => null }));

const session = { user: { email: "root@example.org", is_admin: true }, currency: "USD" } as unknown as Session;
const person = (id: number, name: string, changes: object = {}) => ({
  id, email: `${name.toLowerCase()}@example.org`, name, kind: "person", is_admin: false, admin_by_directory: false, is_active: true, projects: [], more_projects: false, last_sign_in_at: null, created_at: "2026-11-01T00:00:00Z", deactivated_at: null, unix_account: null, unix_account_by: null, unix_account_suggestion: null, ...changes,
});

let page: TestPage;
afterEach(() => page.end());

async function show(at = "/admin/people", as = session): Promise<void> {
  page = new TestPage((sent) => {
    if (sent.method === "DELETE") return { body: { ended: 2 } };
    if (sent.method === "PATCH") return { status: 409, body: { status: 409, detail: "Root is the only active administrator; make another person one first." } };
    return sent.path.includes("is_admin=true") ? pageOf(person(1, "Root", { is_admin: true })) : pageOf(person(2, "Ana", { unix_account_suggestion: "ana" }), person(1, "Root", { is_admin: true }));
  });
  await page.show(<PeoplePage session={as} />, at);
}

it("says what deactivating does before it is done, and why it is refused", async () => {
  await show();
  await page.press("Deactivate: Root");
  expect(page.changes).toEqual([]);
  expect(page.text).toContain("Their tokens are revoked and their sessions end, at once.");
  await page.press("Deactivate");
  expect(page.changes).toEqual([{ path: "people/1", method: "PATCH", body: { is_active: false } }]);
  expect(page.text).toContain("the only active administrator; make another person one first");
});

it("ends somebody's sessions", async () => {
  await show();
  await page.press("End sessions: Ana");
  await page.press("End sessions");
  expect(page.changes).toEqual([{ path: "people/2/sessions", method: "DELETE", body: undefined }]);
});

it("asks for whom the address says", async () => {
  await show("/admin/people?who=gone&search=an");
  expect(page.sent.map((one) => one.path)).toContain("people?search=an&kind=person&is_active=false");
});

it("sets the UNIX account that jobs run as, where they run as people", async () => {
  await show();
  expect(page.text).not.toContain("UNIX account");
  await page.end();
  await show("/admin/people", { ...session, runs_as_person: true } as Session);
  await page.press("UNIX account: Ana");
  expect(page.text).toContain("Their address suggests ana.");
  await page.press("Use it");
  await page.press("Save");
  expect(page.changes).toEqual([{ path: "people/2", method: "PATCH", body: { unix_account: "ana" } }]);
});
