// @vitest-environment jsdom
import { afterEach, expect, it } from "vitest";
import { DraftPage } from "./testing";
import type { JobFile } from "../../lib/jobfile/jobFile";
import type { FieldError } from "./fields";
import { LimitFields } from "./LimitFields";

let page: DraftPage;
afterEach(() => page.end());

async function show(file: JobFile, errors: FieldError[] = []) {
  page = new DraftPage(LimitFields);
  await page.showDraft(file, errors);
}

it("asks for processors and memory of a node, digits alone as MiB", async () => {
  await show({ memory: "16GiB" });
  expect([page.field("Processors").value, page.field("Memory").value]).toEqual(["", "16GiB"]);
  await page.fill("Processors", "4");
  await page.fill("Memory", "6144");
  expect([page.draft.file.cpus, page.draft.file.memory]).toEqual([4, 6144]);
  await page.fill("Memory", "8GiB");
  await page.fill("Processors", "");
  expect(page.draft.file).toEqual({ memory: "8GiB" });
});

it("shows what is wrong with them though they were folded away", async () => {
  await show({ cpus: 0, memory: "much" }, [{ field: "cpus", message: "at least 1" }, { field: "memory", message: "is no amount" }]);
  expect([page.wrong("Processors"), page.wrong("Memory")]).toEqual(["at least 1", "is no amount"]);
  expect(document.querySelector("details")?.open).toBe(true);
});
