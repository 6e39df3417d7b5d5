// @vitest-environment jsdom
import { afterEach, expect, it } from "vitest";
import type { ProjectDetail } from "../../api/types";
import { pageOf, refusal, TestPage, type Answers } from "../../testing/page";
import { MembersPanel } from "./MembersPanel";

const project = { key: "vision", name: "Vision" } as ProjectDetail;
const member = (id: number, name: string, changes: object = {}) => ({ user: { id, email: `${name.toLowerCase()}@example.org`, name }, kind: "person", is_active: true, role: "member", inherited_from: null, by_directory: false, address_proved: true, provenance: null, ...changes });
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
  await page.press("Add a member");
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
  await page.press("Add a member");
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

const MADE = "The account was made by invitation into Acme by mallory@acme.example; the address was never proved.";

it("asks before somebody with an unproved address is added, and again for another address", async () => {
  let asked = 0;
  await show((sent) => {
    if (sent.method !== "POST") return undefined;
    asked += 1;
    return (sent.body as { confirm_unproved?: true }).confirm_unproved ? { status: 201, body: member(3, "Ceo") } : refusal("confirm_unproved", MADE, 409);
  });
  await page.press("Add a member");
  await page.fill("E-mail", "ceo@bolt.example");
  await page.press("Add");
  expect(page.text).toContain(MADE);
  await page.tick("I asked them: the account is theirs");
  await page.fill("E-mail", "cto@bolt.example");
  expect(page.text).not.toContain(MADE);
  await page.press("Add");
  await page.tick("I asked them: the account is theirs");
  await page.press("Add");
  expect(asked).toBe(3);
  expect(page.changes.map((one) => one.body)).toEqual([
    { email: "ceo@bolt.example", role: "member" },
    { email: "cto@bolt.example", role: "member" },
    { email: "cto@bolt.example", role: "member", confirm_unproved: true },
  ]);
});

it("marks accounts whose address was never proved, with where they come from", async () => {
  await show((sent) => (sent.method === "GET" ? pageOf(member(1, "Ana"), member(2, "Ceo", { address_proved: false, provenance: MADE })) : undefined));
  const marks = [...document.querySelectorAll(".chip.warn")];
  expect(marks.map((one) => [one.textContent, one.getAttribute("title")])).toEqual([["unproved address", MADE]]);
});

it("shows no link where it was mailed", async () => {
  await show((sent) => {
    if (sent.method !== "POST") return undefined;
    return sent.path.endsWith("members") ? refusal("email", "has no account here: send an invitation") : { status: 201, body: { ...invitation, link: null, mailed: true } };
  });
  await page.press("Add a member");
  await page.fill("E-mail", "new@example.org");
  await page.press("Add");
  expect(page.text).toContain("only they have it");
  expect(document.querySelector("code")).toBeNull();
});
