// @vitest-environment jsdom
import { afterEach, expect, it, vi } from "vitest";
import type { ClusterTimeline } from "../../api/types";
import { HeldBlock } from "../../components/gpus/HeldBlock";
import type { JobView } from "../../lib/live/liveContext";
import { TestPage } from "../../testing/page";
import { Timeline } from "./Timeline";
import { TimelineCanvas } from "./TimelineCanvas";

// jsdom has no adopted style sheets, which jobs are lit with.
vi.mock("../../lib/highlight", () => ({ jobMark: () => ({}), jobPaint: () => ({}), lightJob: () => {}, useLit: () => null }));

const HEBREW = "אימון 7";
const ALONE = `\u2068${HEBREW}\u2069`;
const [FROM, NOW] = [Date.parse("2026-05-04T10:00:00Z"), Date.parse("2026-05-04T11:00:00Z")];
const timeline = {
  nodes: [{ name: HEBREW, type: "titan_xp", emulated: false, gpus: 2 }],
  holds: [{ node: HEBREW, index: 0, job: { number: 12, name: HEBREW, project: "Vision" }, epoch: 1, kind: "running", from_at: new Date(FROM).toISOString(), to_at: null, share_percent: 100 }],
  resizes: [],
} as unknown as ClusterTimeline;

let page: TestPage;
afterEach(async () => {
  await page.end();
  vi.restoreAllMocks();
});

it("keeps a job's name to itself in the title of its GPUs", async () => {
  page = new TestPage(() => undefined);
  const job = { number: 12, name: HEBREW, project: "Vision", state: "running", gpus: 1, full: null } as unknown as JobView;
  await page.show(<HeldBlock number={12} job={job} moving={false} guarded={false} emulated={false} where="oak-01 GPU 0" style={{}}>12</HeldBlock>);
  expect(document.querySelector<HTMLElement>(".blk")?.title).toBe(`#12 ${ALONE}, running: oak-01 GPU 0`);
});

it("keeps names to themselves beside numbers in the timeline", async () => {
  page = new TestPage(() => undefined);
  await page.show(<Timeline timeline={timeline} from={FROM} now={NOW} width={900} />);
  expect([...document.querySelectorAll("text")].map((one) => one.textContent)).toContain(`12 ${ALONE}`);
  expect([...document.querySelectorAll("rect > title")].map((one) => one.textContent)).toEqual([expect.stringContaining(`#12 ${ALONE}: running on ${ALONE}, `)]);
});

it("keeps names of nodes to themselves on the canvas", async () => {
  const fillText = vi.fn();
  const context = { fillText, setTransform: () => {}, clearRect: () => {}, fillRect: () => {} } as unknown as CanvasRenderingContext2D;
  vi.spyOn(HTMLCanvasElement.prototype, "getContext").mockReturnValue(context as never);
  page = new TestPage(() => undefined);
  await page.show(<TimelineCanvas timeline={timeline} from={FROM} now={NOW} width={900} />);
  expect(fillText.mock.calls.map(([text]) => text as string)).toContain(ALONE);
});
