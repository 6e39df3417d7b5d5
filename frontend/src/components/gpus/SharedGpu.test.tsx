// @vitest-environment jsdom
import { afterEach, expect, it, vi } from "vitest";
import type { NodeState } from "../../api/types";
import { nodeBlocks, type Block } from "../../lib/sentence/blocks";
import type { JobView } from "../../lib/live/liveContext";
import { TestPage } from "../../testing/page";
import { SharedGpu } from "./SharedGpu";

// jsdom has no adopted style sheets, which blocks are lit with.
vi.mock("../../lib/highlight", () => ({ jobMark: (number: number) => ({ "data-job": number }), jobPaint: () => ({}) }));

const parts = [{ job: 12, kind: "protected", share_percent: 50 }, { job: 15, kind: "launching", share_percent: 25 }];
const node = { gpus: 1, schedulable: true, lost: false, accelerators: { 0: { state: "held", job: 12, kind: "protected", parts, free_percent: 25, utilisation: 0.6 } } } as unknown as NodeState;
const block = nodeBlocks(node)[0] as Block;
const own = { number: 12, name: "mine", project: "Vision", state: "running", gpus: 1, full: {} } as unknown as JobView;
const other = { number: 15, name: null, project: "Speech", state: "starting", gpus: 1, full: null } as JobView;

let page: TestPage;
afterEach(() => page.end());

async function show(small = false) {
  page = new TestPage(() => undefined);
  await page.show(<SharedGpu block={block} jobs={new Map([own, other].map((job) => [job.number, job]))} nodeName="oak-01" emulated={false} freeReason="no job gains" small={small} />);
}
const one = (job: number) => document.querySelector<HTMLElement>(`[data-job="${job}"]`)!;

it("draws each part as large as its share, and the rest as free with its reason", async () => {
  await show();
  expect([...document.querySelectorAll<HTMLElement>(".blk")].map((part) => [part.style.flexGrow, part.textContent])).toEqual([
    ["50", "12 50\u2009% mine"], ["25", "15 25\u2009% Speech"], ["25", "25\u2009% free"],
  ]);
  expect(document.querySelector(".free")?.getAttribute("title")).toBe("oak-01 GPU 0: 25\u2009% free, no job gains");
  expect([one(12).className, one(15).className]).toEqual(["blk jx patterned", "blk jx moving"]);
});

it("leads from a part to its job for who may read it, and says who has it", async () => {
  await show();
  expect([one(12).getAttribute("href"), one(15).getAttribute("href")]).toEqual(["/jobs/12", null]);
  expect(one(12).title).toBe("#12 mine, running, protected: 50\u2009% of oak-01 GPU 0");
  expect(document.querySelector("[role=group]")?.getAttribute("aria-label")).toBe("oak-01 GPU 0: #12 50\u2009%, #15 25\u2009%, 25\u2009% free; 60\u2009% busy");
});

it("shows numbers alone where there is little room", async () => {
  await show(true);
  expect([...document.querySelectorAll(".blk")].map((part) => part.textContent)).toEqual(["12", "15", ""]);
});
