// @vitest-environment jsdom
import { afterEach, expect, it, vi } from "vitest";
import { DraftPage } from "./testing";
import type { JobFile } from "../../lib/jobfile/jobFile";
import type { FieldError } from "./fields";
import { LimitFields } from "./LimitFields";

vi.mock("../../lib/highlight", () => ({ jobPaint: () => ({}) }));

let page: DraftPage;
afterEach(() => page.end());

async function show(file: JobFile, errors: FieldError[] = []) {
  page = new DraftPage(LimitFields);
  await page.showDraft(file, errors);
}

it("writes a repository into the job file, and takes the group away with the last of it", async () => {
  await show({});
  await page.fill("Git repository", "https://example.org/team/code.git");
  await page.fill("Branch, tag or commit", "v1.2");
  await page.fill("Directory in it", "train");
  await page.fill("Secret with its token", "GIT_TOKEN");
  expect(page.draft.file.code).toEqual({ git: "https://example.org/team/code.git", ref: "v1.2", subdir: "train", token_secret: "GIT_TOKEN" });
  for (const label of ["Git repository", "Branch, tag or commit", "Directory in it", "Secret with its token"]) await page.fill(label, "");
  expect(page.draft.file.code).toBeUndefined();
});

it("unfolds where something of it is wrong, and says what is wrong with the whole where it was begun", async () => {
  await show({ code: { git: "https://example.org/team/code.git" } }, [{ field: "code", message: "git and ref belong together" }]);
  expect(document.querySelector("details")?.open).toBe(true);
  expect(page.wrong("Git repository")).toBe("git and ref belong together");
  await page.showDraft({ code: { path: "/shared" } }, [{ field: "code", message: "not there" }, { field: "code.ref", message: "no such ref" }]);
  expect(page.wrong("Branch, tag or commit")).toBe("no such ref");
});

it("says at the directory what is wrong with it", async () => {
  await show({ code: { path: "/shared", subdir: "a" } }, [{ field: "code", message: "subdir is for git and bundle" }]);
  expect(page.wrong("Code directory")).toBe("subdir is for git and bundle");
});
