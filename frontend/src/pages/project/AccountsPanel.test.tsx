// @vitest-environment jsdom
import { afterEach, expect, it } from "vitest";
import type { ProjectDetail } from "../../api/types";
import { pageOf, TestPage, type Sent } from "../../testing/page";
import { AccountsPanel } from "./AccountsPanel";

const project = { key: "vision", name: "Vision" } as ProjectDetail;
const account = { id: 5, name: "ci", email: "ci@vision.service.invalid", project: "vision", role: "member", is_active: true, tokens: 1, created_at: "2026-11-01T00:00:00Z" };
const token = { id: 8, name: "night", prefix: "ab12", scopes: ["jobs:read"], project: "vision", created_at: "2026-11-01T00:00:00Z", expires_at: null, last_used_at: null, last_used_address: null, revoked_at: null };

let page: TestPage;
afterEach(() => page.end());

function answers(sent: Sent) {
  if (sent.method === "POST") return { status: 201, body: { ...token, name: "day", secret: "ek_new_secret" } };
  if (sent.method === "DELETE") return { status: 204 };
  return sent.path.endsWith("tokens") ? pageOf(token) : pageOf(account);
}

it("makes a token that is shown once", async () => {
  page = new TestPage(answers);
  await page.show(<AccountsPanel project={project} manages />);
  await page.press("Tokens of ci");
  await page.fill("Name of a new token", "day");
  await page.press("Make token");
  expect(page.changes).toEqual([{ path: "projects/vision/service-accounts/5/tokens", method: "POST", body: { name: "day", expires_in_days: 90, scopes: ["jobs:read", "jobs:write"] } }]);
  expect(page.text).toContain("ek_new_secret");
  await page.press("Done");
  expect(page.text).not.toContain("ek_new_secret");
});

it("rotates a token at once and asks before it revokes one", async () => {
  page = new TestPage(answers);
  await page.show(<AccountsPanel project={project} manages />);
  await page.press("Tokens of ci");
  await page.press("Rotate night");
  await page.press("Revoke night");
  expect(page.changes.map((one) => one.path)).toEqual(["tokens/8/rotate"]);
  await page.press("Revoke the token");
  expect(page.changes.map((one) => `${one.method} ${one.path}`)).toEqual(["POST tokens/8/rotate", "DELETE tokens/8"]);
});
