// @vitest-environment jsdom
import { MantineProvider } from "@mantine/core";
import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { act } from "react";
import { createRoot, type Root } from "react-dom/client";
import { MemoryRouter } from "react-router";
import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { createLiveStore, LiveContext } from "../../lib/live/liveContext";
import { Preview } from "./Preview";

// jsdom has no adopted style sheets, which swatches are painted with.
vi.mock("../../lib/highlight", () => ({ jobPaint: () => ({}) }));

const OPTION = { type: "k1", gpus: 1, steps_per_s: 10, source: "user", age_s: null, samples: 0, duration_s: 3600, price: {}, price_per_hour: "1", amount: "0.80", low: "0.7", high: "0.9", basis: "so" };
const ESTIMATE = { currency: "USD", project: "vision", options: [OPTION], low: "0.7", high: "0.9", basis: "", discount: { percent: "20", project: "vision", name: "Vision" }, jobs: 1, refused_by: [] as string[], waits_for: [] as string[] };
const PREVIEW = {
  verdict: "later", reason: { code: "no_room", text: "No room for it." }, would_change: "It starts when 1 is free.", as_of: "2026-11-21T14:32:00Z", allocation: null, jobs: 1, starting: 0, position: 2, prepares: false, warnings: [] as string[],
  effects: [] as unknown[], affected: 0, variance: { before: null, after: null, bound: null }, estimate: ESTIMATE, throughput: {}, forecast: "f" as string | null, cluster: { name: "local", choice: null as string | null },
};
const START = { p10_at: "2026-11-21T14:42:00Z", p50_at: "2026-11-21T14:52:00Z", p90_at: "2026-11-21T15:12:00Z", as_of: "2026-11-21T14:32:00Z", basis: "simulated", run_time: "steps", outcomes: 0, reason: null };
const FORECAST = {
  as_of: "2026-11-21T14:32:00Z", start: START, end: { low_at: "2026-11-21T15:42:00Z", at: "2026-11-21T15:52:00Z", high_at: "2026-11-21T16:12:00Z", duration_s: 3600 },
  cost: { low: "0.75", amount: "0.81", high: "0.88", currency: "USD" }, gang: { type: "k1", count: 1 }, delayed: [{ job: { number: 9, name: "late", project: "Vision" }, later_s: 600, start_before_at: "2026-11-21T14:40:00Z" }], others_delayed: 3, futures: 12,
};
const LIMIT = "The limit of 1 running job on project Vision is reached: 1 in use.";

let root: Root;
let asked: unknown[];
let answer: () => Response;
let foreseen: unknown[];
const json = (body: unknown, status = 200) => new Response(JSON.stringify(body), { status, headers: { "Content-Type": "application/json" } });

beforeEach(() => {
  vi.useFakeTimers({ now: new Date("2026-11-21T14:32:00Z") });
  (globalThis as { IS_REACT_ACT_ENVIRONMENT?: boolean }).IS_REACT_ACT_ENVIRONMENT = true;
  window.matchMedia = ((query: string) => ({ matches: false, media: query, addEventListener: () => {}, removeEventListener: () => {}, addListener: () => {}, removeListener: () => {} })) as unknown as typeof window.matchMedia;
  globalThis.ResizeObserver = class { observe() {} unobserve() {} disconnect() {} };
  asked = [];
  answer = () => json({ ...PREVIEW, forecast: `f${asked.length}` });
  foreseen = [];
  vi.stubGlobal("fetch", async (path: string, init: RequestInit) => {
    if (path.includes("/previews/")) return json(foreseen.length > 0 ? { status: "done", forecast: foreseen.shift() } : { status: "pending", forecast: null });
    if (!path.endsWith("/jobs/preview")) return json({ results: [], next: null, previous: null });
    asked.push(JSON.parse(String(init.body)));
    return answer();
  });
  document.body.innerHTML = "<div id='root'></div>";
  root = createRoot(document.getElementById("root") as HTMLElement);
});

afterEach(async () => {
  await act(async () => root.unmount());
  vi.unstubAllGlobals();
  vi.useRealTimers();
});

const client = () => new QueryClient({ defaultOptions: { queries: { retry: false } } });
const live = createLiveStore(() => {});

async function show(file: Record<string, unknown>, queries: QueryClient): Promise<void> {
  await act(async () => root.render(<MantineProvider env="test"><QueryClientProvider client={queries}><MemoryRouter><LiveContext value={live}><Preview file={{ model_type: "resnet50", ...file }} /></LiveContext></MemoryRouter></QueryClientProvider></MantineProvider>));
}

const later = (ms: number) => act(async () => { await vi.advanceTimersByTimeAsync(ms); });
const text = () => document.body.textContent ?? "";

it("shows the verdict with its reason, and the portal's discounted cost", async () => {
  await show({ total_steps: 1 }, client());
  expect(document.querySelector("[aria-busy=true]")).not.toBeNull();
  await later(50);
  expect(document.querySelector("h2")?.textContent).toBe("It will wait, as number 2 of the queue");
  expect(text()).toContain("No room for it. It starts when 1 is free.");
  expect(text()).toContain("$0.80");
  expect(text()).toContain("less 20\u2009% discount of project Vision");
  expect(text()).toContain("replaying the queue");
});

it("asks for the forecast until it is there, and says start, end, cost and who starts later", async () => {
  await show({ total_steps: 1 }, client());
  await later(50);
  foreseen = [FORECAST];
  await later(450);
  await later(50);
  expect(document.querySelector("h2")?.textContent).toBe("Starts in 10\u2009min to 40\u2009min");
  expect(text()).toContain("$0.75–$0.88");
  expect(text()).toContain("starts 10\u2009min later");
  expect(text()).toContain("And 2 more jobs.");
  expect(text()).not.toContain("replaying the queue");
});

it("keeps the forecast of the same file until the next one is there, and none of another", async () => {
  const queries = client();
  await show({ total_steps: 1 }, queries);
  await later(50);
  foreseen = [FORECAST];
  await later(500);
  expect(text()).toContain("$0.75–$0.88");
  await later(30_100);
  expect(asked).toHaveLength(2);
  expect(text()).toContain("$0.75–$0.88");
  await show({ total_steps: 2 }, queries);
  await later(600);
  expect(text()).not.toContain("$0.75–$0.88");
  expect(text()).toContain("replaying the queue");
  await later(20_000);
  expect(text()).not.toContain("replaying the queue");
  expect(text()).toContain("not worked out");
});

it("says whose GPUs and slowdown change", async () => {
  const job = { number: 7, name: null, project: "Speech" };
  const effect = { job, running: true, before: { type: "k1", count: 4 }, after: { type: "k1", count: 2 }, slowdown_before: 1, slowdown_after: 1.5556, later_s: 90 };
  const gone = { job: { ...job, number: 8 }, running: true, before: { type: "k1", count: 1 }, after: null, slowdown_before: 2, slowdown_after: null, later_s: null };
  const allocation = { type: "k1", count: 2, gpus: [{ node: "n1", index: 0 }], from_others: true };
  answer = () => json({ ...PREVIEW, verdict: "now", starting: 1, position: null, allocation, effects: [effect, gone, { ...gone, job: { ...job, number: 9 }, running: false }], affected: 3, variance: { before: 0.01, after: 0.02, bound: 0.04 } });
  await show({ total_steps: 1 }, client());
  await later(50);
  expect(document.querySelector("h2")?.textContent).toBe("Starts in the next round");
  expect(text()).toContain("n1, left by others");
  const rows = [...document.querySelectorAll("tbody tr")].map((row) => row.textContent);
  expect(rows[0]).toContain("4 → 2\u2009×\u2009K1");
  expect(rows[0]).toContain("1.0 → 1.6");
  expect(rows[0]).toContain("ends 2\u2009min later");
  expect(rows[1]).toContain("requeued");
  expect(rows[2]).toContain("stays queued");
  expect(text()).toContain("bound 0.04");
});

it("says the limit that refuses the job, with no effect and no forecast", async () => {
  answer = () => json({ ...PREVIEW, verdict: "never", reason: { code: "refused", text: LIMIT }, would_change: null, estimate: { ...ESTIMATE, refused_by: [LIMIT] }, forecast: null });
  await show({ total_steps: 1 }, client());
  await later(50);
  expect(document.querySelector("h2")?.textContent).toBe("A limit refuses it now");
  expect(text()).toContain(LIMIT);
  expect(text()).not.toContain("Effect on others");
  expect(text()).toContain("it does not");
});

it("asks nothing and waits for nothing while no program is chosen", async () => {
  await show({ model_type: undefined, total_steps: 1 }, client());
  await later(700);
  expect(asked).toEqual([]);
  expect(text()).toContain("Choose a program");
  expect(document.querySelector("[aria-busy=true]")).toBeNull();
});

it("asks once what was typed has settled, and marks the answer before as old until then", async () => {
  const queries = client();
  await show({ total_steps: 1 }, queries);
  await later(50);
  for (const total_steps of [12, 123, 1234]) {
    await show({ total_steps }, queries);
    await later(100);
  }
  expect(asked).toEqual([{ model_type: "resnet50", total_steps: 1 }]);
  expect(document.querySelector("[aria-busy=true]")?.textContent).toContain("$0.80");
  await later(600);
  await later(50);
  expect(asked).toEqual([{ model_type: "resnet50", total_steps: 1 }, { model_type: "resnet50", total_steps: 1234 }]);
  expect(document.querySelector("[aria-busy=true]")).toBeNull();
});

it("says what the file lacks, and offers to ask again where the portal could not answer", async () => {
  answer = () => json({ status: 400, title: "Wrong", errors: [{ field: "total_steps", message: "is missing", code: "required" }] }, 400);
  await show({}, client());
  await later(50);
  expect(document.querySelector("[role=status]")?.textContent).toBe("No preview yet. total_steps: is missing");
  answer = () => json({ status: 503, title: "Busy" }, 503);
  await show({ total_steps: 2 }, client());
  await later(600);
  await later(50);
  expect(document.querySelector("[role=alert]")?.textContent).toContain("The preview could not be read");
  expect([...document.querySelectorAll("button")].map((button) => button.textContent)).toContain("Retry");
});
