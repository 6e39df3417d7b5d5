// @vitest-environment jsdom
import { MantineProvider } from "@mantine/core";
import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { act } from "react";
import { createRoot, type Root } from "react-dom/client";
import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { createLiveStore, LiveContext } from "../../lib/liveContext";
import { Preview } from "./Preview";

const OPTION = { type: "k1", gpus: 1, steps_per_s: 10, source: "user", age_s: null, samples: 0, duration_s: 3600, price: {}, rate_per_hour: "1", amount: "0.80", low: "0.7", high: "0.9", basis: "so" };
const ESTIMATE = { currency: "USD", project: "vision", options: [OPTION], low: "0.7", high: "0.9", basis: "", discount: { percent: "20", project: "vision", name: "Vision" }, jobs: 1, refused_by: [] as string[], waits_for: [] as string[] };
const LIMIT = "The limit of 1 running job on project Vision is reached: 1 in use.";

let root: Root;
let asked: unknown[];
let answer: () => Response;
const json = (body: unknown, status = 200) => new Response(JSON.stringify(body), { status, headers: { "Content-Type": "application/json" } });

beforeEach(() => {
  vi.useFakeTimers();
  (globalThis as { IS_REACT_ACT_ENVIRONMENT?: boolean }).IS_REACT_ACT_ENVIRONMENT = true;
  window.matchMedia = ((query: string) => ({ matches: false, media: query, addEventListener: () => {}, removeEventListener: () => {}, addListener: () => {}, removeListener: () => {} })) as unknown as typeof window.matchMedia;
  globalThis.ResizeObserver = class { observe() {} unobserve() {} disconnect() {} };
  asked = [];
  answer = () => json(ESTIMATE);
  vi.stubGlobal("fetch", async (path: string, init: RequestInit) => {
    if (!path.endsWith("/jobs/estimate")) return json({ results: [], next: null, previous: null });
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
  await act(async () => root.render(<MantineProvider env="test"><QueryClientProvider client={queries}><LiveContext value={live}><Preview file={file} /></LiveContext></QueryClientProvider></MantineProvider>));
}

const later = (ms: number) => act(async () => { await vi.advanceTimersByTimeAsync(ms); });
const text = () => document.body.textContent ?? "";

it("shows the portal's discounted cost and whose discount it is", async () => {
  await show({ total_steps: 1 }, client());
  expect(text()).toContain("asking the portal");
  await later(50);
  expect(text()).toContain("$0.80");
  expect(text()).toContain("less 20\u2009% discount of project Vision");
});

it("says the limit that refuses the job", async () => {
  answer = () => json({ ...ESTIMATE, refused_by: [LIMIT] });
  await show({ total_steps: 1 }, client());
  await later(50);
  expect(document.querySelector("h2")?.textContent).toBe("A limit refuses it now");
  expect(text()).toContain(LIMIT);
});

it("asks once what was typed has settled, and marks the answer before as old until then", async () => {
  const queries = client();
  await show({ total_steps: 1 }, queries);
  await later(50);
  for (const total_steps of [12, 123, 1234]) {
    await show({ total_steps }, queries);
    await later(100);
  }
  expect(asked).toEqual([{ total_steps: 1 }]);
  expect(document.querySelector("[aria-busy=true]")?.textContent).toContain("$0.80");
  await later(600);
  await later(50);
  expect(asked).toEqual([{ total_steps: 1 }, { total_steps: 1234 }]);
  expect(document.querySelector("[aria-busy=true]")).toBeNull();
});

it("says what the file lacks, and offers to ask again where the portal could not answer", async () => {
  answer = () => json({ status: 400, title: "Wrong", errors: [{ field: "total_steps", message: "is missing", code: "required" }] }, 400);
  await show({}, client());
  await later(50);
  expect(document.querySelector("[role=status]")?.textContent).toBe("No estimate yet. total_steps: is missing");
  answer = () => json({ status: 503, title: "Busy" }, 503);
  await show({ total_steps: 2 }, client());
  await later(600);
  await later(50);
  expect(document.querySelector("[role=alert]")?.textContent).toContain("The estimate could not be read");
  expect([...document.querySelectorAll("button")].map((button) => button.textContent)).toContain("Retry");
});
