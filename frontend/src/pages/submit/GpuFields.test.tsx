// @vitest-environment jsdom
import { afterEach, expect, it, vi } from "vitest";
import { DraftPage } from "./testing";
import type { Sent } from "../../testing/page";
import type { JobFile } from "../../lib/jobfile/jobFile";
import type { FieldError } from "./fields";
import { GpuFields } from "./GpuFields";

vi.mock("../../lib/highlight", () => ({ jobPaint: () => ({}) }));

const TYPES = [{ name: "k1", title: "K1", count: 4, memory_mib: 8192, price_per_gpu_hour: null, currency: "USD" }];
const answers = (sent: Sent) => (sent.path.startsWith("accelerator-types") ? { body: TYPES } : undefined);

let page: DraftPage;
afterEach(() => page.end());

async function show(file: JobFile, errors: FieldError[] = []) {
  page = new DraftPage(GpuFields, answers);
  await page.showDraft(file, errors);
}
const pressed = () => [...document.querySelectorAll(".seg button[aria-pressed=true]")].map((one) => one.textContent);

it("asks for a part of one GPU instead of whole ones, and for whole ones again", async () => {
  await show({ gpus: { min: 1, max: 4, types: ["k1"] } });
  expect(pressed()).toEqual(["Whole GPUs"]);
  await page.press("Part of one GPU");
  expect(page.draft.file.gpus).toEqual({ types: ["k1"], share: 0.5 });
  await page.fill("Share of one GPU", "33");
  await page.fill("GPU memory", "6GiB");
  expect(page.draft.file.gpus).toEqual({ types: ["k1"], share: 0.33, memory: "6GiB" });
  await page.press("Whole GPUs");
  expect(page.draft.file.gpus).toEqual({ types: ["k1"] });
});

it("takes no share that is no part, and digits alone as MiB", async () => {
  await show({ gpus: { share: 0.5 } });
  for (const text of ["100", "0", "-5", "33.3", "0.333", "1.0", "1.", ""]) {
    await page.fill("Share of one GPU", text);
    page.field("Share of one GPU").dispatchEvent(new FocusEvent("focusout", { bubbles: true }));
    expect([page.field("Share of one GPU").value, page.wrong("Share of one GPU")]).toEqual([text, "A whole number of percent, from 1 to 99, or a part as 0.25."]);
    expect(page.draft.file.gpus).toEqual({ share: `${text} %` }); // and not the share before
  }
  await page.fill("GPU memory", "6144");
  await page.fill("Share of one GPU", "0.25");
  expect(page.draft.file.gpus).toEqual({ share: 0.25, memory: 6144 });
  await page.fill("Share of one GPU", ".3");
  expect(page.draft.file.gpus).toEqual({ share: 0.3, memory: 6144 });
});

it("reads the shorthands of a file, and loses nothing of them by a change", async () => {
  await show({ gpus: 0.25 });
  expect([pressed(), page.field("Share of one GPU").value]).toEqual([["Part of one GPU"], "25"]);
  await page.fill("GPU memory", "2GiB");
  expect(page.draft.file.gpus).toEqual({ share: 0.25, memory: "2GiB" });
  await page.end();
  await show({ gpus: 2 });
  expect([pressed(), page.text.includes("It runs on exactly 2.")]).toEqual([["Whole GPUs"], true]);
});

it("shows what is wrong at its field", async () => {
  await show({ gpus: { share: 0.5, memory: "much" } }, [{ field: "gpus.share", message: "is too little" }, { field: "gpus.memory", message: "is no amount" }, { field: "gpus.types", message: "knows no k9" }]);
  expect([page.wrong("Share of one GPU"), page.wrong("GPU memory")]).toEqual(["is too little", "is no amount"]);
  expect(page.text).toContain("knows no k9");
});
