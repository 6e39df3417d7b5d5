// @vitest-environment jsdom
import { afterEach, expect, it } from "vitest";
import type { ProjectDetail } from "../../api/types";
import { pageOf, refusal, TestPage, type Answers } from "../../testing/page";
import { MembersPanel } from "./MembersPanel";

const project = { key: "vision", name: "Vision" } as ProjectDetail;
const member = (id: number, name: string, changes: object = {}) => ({ user: { id, email: `${name.toLowerCase()}@example.org`, name }, kind: "person", is_active: true, role: "member", inherited_from: null, by_directory: false, ...changes });
const invitation = { id: 1, email: "new@example.org", role: "viewer", link: "https://x/invitation#abc", mailed: false };

let page: TestPage;
afterEach(() => page.end());

async function show(answers: Answers, manages = true): Promise<void> {
  page = new TestPage((sent) => answers(sent) ?? (sent.method === "GET" ? pageOf(member(1, "Ana"), member(2, "Max", { role: "manager", inherited_from: "lab" })) : { status: 204 }));
  await page.show(<MembersPanel project={project} manages={manages} email="ana@example.org" />);
}

it("invites whoever has no account, and shows the link once", async () => {
  await show((sent) => {
    if (sent.method !== "POST") return undefined;
    return sent.path.endsWith("members") ? refusal("email", "has no account here: send an invitation") : { status: 201, body: invitation };
  });
  await page.press("Add somebody");
  await page.fill("E-mail", "new@example.org");
  await page.fill("Role", "viewer");
  await page.press("Add");
  const body = { email: "new@example.org", role: "viewer" };
  expect(page.changes).toEqual([{ path: "projects/vision/members", method: "POST", body }, { path: "projects/vision/invitations", method: "POST", body }]);
  expect(page.text).toContain("https://x/invitation#abc");
  expect(page.text).toContain("pass the link on");
  await page.press("Done");
  expect(page.text).not.toContain("invitation#abc");
});

it("says at the field what is wrong with an address", async () => {
  await show((sent) => (sent.method === "POST" ? refusal("email", "must be an address") : undefined));
  await page.press("Add somebody");
  await page.fill("E-mail", "nobody@x");
  await page.press("Add");
  expect(page.wrong("E-mail")).toBe("must be an address");
});

it("asks once more before somebody is removed", async () => {
  await show(() => undefined);
  await page.press("Remove Ana");
  expect(page.changes).toEqual([]);
  expect(page.text).toContain("Jobs that they submitted stay");
  await page.press("Remove from the project");
  expect(page.changes).toEqual([{ path: "projects/vision/members/1", method: "DELETE", body: undefined }]);
});

it("does not offer to take away here what was given above", async () => {
  await show(() => undefined);
  expect(() => page.button("Remove Max")).toThrow();
  expect(page.button("Change role of Max")).toBeTruthy();
});

it("offers nothing to whoever does not manage the project", async () => {
  await show(() => undefined, false);
  expect(page.text).toContain("Ana");
  expect(document.querySelectorAll("button")).toHaveLength(0);
});
