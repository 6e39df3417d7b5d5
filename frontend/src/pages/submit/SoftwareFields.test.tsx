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
const open = () => document.querySelector("details")?.open;

it("writes packages, modules and an image into the job file, and takes the group away with the last of them", async () => {
  await show({});
  expect(open()).toBe(false);
  await page.fill("Packages, a line each", "einops==0.8.1\nrich");
  await page.fill("Modules", "cuda/12.4, nccl ");
  expect(page.draft.file.environment).toEqual({ requirements: "einops==0.8.1\nrich", modules: ["cuda/12.4", "nccl"] });
  await page.fill("Packages, a line each", "");
  await page.fill("Modules", "");
  expect(page.draft.file.environment).toBeUndefined();
  await page.fill("Image", "/shared/pytorch.sif");
  expect(page.draft.file.environment).toEqual({ image: "/shared/pytorch.sif" });
});

it("shows what a job file says, and keeps what the form has no field for", async () => {
  await show({ environment: { modules: ["gcc", "cuda/12.4"], digest: "ab" } });
  const modules = document.querySelector<HTMLInputElement>("[name='environment.modules']");
  expect(modules?.value).toBe("gcc cuda/12.4");
  await page.fill("Modules", "gcc");
  expect(page.draft.file.environment).toEqual({ modules: ["gcc"], digest: "ab" });
});

it("stays unfolded when the words are gone, and says at the image what is wrong with it and others", async () => {
  const both = { environment: { image: "/shared/pytorch.sif", modules: ["gcc"] } };
  await show(both, [{ field: "environment", message: "leave the modules out" }]);
  expect(page.wrong("Image")).toBe("leave the modules out");
  await page.showDraft(both, []);
  expect(open()).toBe(true);
});

it("unfolds where something inside is wrong, each word at its field", async () => {
  await show({}, [{ field: "environment.modules.1", message: "no such name" }, { field: "environment", message: "give one of them" }]);
  expect(open()).toBe(true);
  const words = [...document.querySelectorAll(".h.bad")].map((one) => [one.parentElement?.querySelector("label")?.textContent, one.textContent]);
  expect(words).toEqual([["Packages, a line each", "give one of them"], ["Modules", "no such name"]]);
});
