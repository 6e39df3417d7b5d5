// @vitest-environment jsdom
import { MantineProvider } from "@mantine/core";
import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { act } from "react";
import { createRoot, type Root } from "react-dom/client";
import { MemoryRouter } from "react-router";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import type { Job, JobColumn, Session } from "../../api/types";
import { BulkBar } from "./BulkBar";
import { JobTable } from "./JobTable";
import { useSelection } from "./useSelection";

vi.mock("../../lib/highlight", () => ({ jobMark: (number: number) => ({ "data-job": number }), jobPaint: () => ({}) }));

const session = { user: { is_admin: false }, projects: [{ key: "vision", name: "Vision", role: "member" }] } as unknown as Session;
const job = (number: number, changes: object = {}) => ({
  id: `id-${number}`, number, name: `job-${number}`, project: { key: "vision", name: "Vision" }, owner: { name: "Ana", email: "ana@example.org" }, state: "running", reason: { code: "", text: "" },
  progress: 0.5, step: 5, total_steps: 10, gpus: { min: 1, max: 4, types: [] }, allocation: null, array: null, hold: null, labels: { sweep: "7" }, can_cancel: true, restartable: true, emulated: false,
  submitted_at: "2026-11-22T10:00:00Z", started_at: null, finished_at: null, throughput: { steps_per_s: 8.4 }, slowdown: 2, times: { queueing_s: 60, launching_s: 1, running_s: 1 },
  cost: { so_far: "1.50", currency: "USD" }, model_type: "tiny", command: null, partition: null, qos: null, priority: 0, ...changes,
}) as unknown as Job;
const NOW = new Date("2026-11-22T12:00:00Z");

let root: Root;
let sent: { path: string; body: unknown; key: string | null }[];
let answer: unknown;

beforeEach(() => {
  (globalThis as { IS_REACT_ACT_ENVIRONMENT?: boolean }).IS_REACT_ACT_ENVIRONMENT = true;
  window.matchMedia = ((query: string) => ({ matches: false, media: query, addEventListener: () => {}, removeEventListener: () => {}, addListener: () => {}, removeListener: () => {} })) as unknown as typeof window.matchMedia;
  globalThis.ResizeObserver = class { observe() {} unobserve() {} disconnect() {} };
  vi.spyOn(HTMLElement.prototype, "offsetHeight", "get").mockReturnValue(35);
  window.scrollTo = () => {};
  sent = [];
  vi.stubGlobal("fetch", async (path: string, init: RequestInit) => {
    sent.push({ path, body: JSON.parse(String(init.body)), key: (init.headers as Record<string, string>)["Idempotency-Key"] ?? null });
    return new Response(JSON.stringify(answer), { status: 200, headers: { "Content-Type": "application/json" } });
  });
  document.body.innerHTML = "<main id='root'></main>";
  root = createRoot(document.getElementById("root") as HTMLElement);
});

afterEach(async () => {
  await act(async () => root.unmount());
  vi.unstubAllGlobals();
  vi.restoreAllMocks();
  readMore.mockClear();
});

const readMore = vi.fn();

function Shown({ jobs, columns, more = false }: { jobs: Job[]; columns: JobColumn[]; more?: boolean }) {
  const selection = useSelection(jobs, "");
  return (
    <>
      <JobTable jobs={jobs} folded={false} arrays={undefined} columns={columns} now={NOW} selection={selection} more={more} readMore={readMore} />
      <BulkBar jobs={selection.jobs} session={session} onClear={selection.clear} />
    </>
  );
}

async function show(jobs: Job[], columns: JobColumn[] = ["state", "cost"], more = false): Promise<void> {
  await act(async () => root.render(
    <MantineProvider env="test"><QueryClientProvider client={new QueryClient()}><MemoryRouter><Shown jobs={jobs} columns={columns} more={more} /></MemoryRouter></QueryClientProvider></MantineProvider>,
  ));
}
const rows = () => [...document.querySelectorAll<HTMLElement>("tr[data-row]")];
const box = (name: string) => document.querySelector<HTMLInputElement>(`input[aria-label="${name}"]`) as HTMLInputElement;
const named = (name: string) => [...document.querySelectorAll("button")].find((button) => button.textContent === name) as HTMLButtonElement;
async function press(element: HTMLElement, init: MouseEventInit = {}): Promise<void> {
  await act(async () => { element.dispatchEvent(new MouseEvent("click", { bubbles: true, cancelable: true, ...init })); });
  await act(async () => { await new Promise((done) => setTimeout(done)); });
}

describe("the table of jobs", () => {
  it("draws few of many rows and keeps the place of the others", async () => {
    await show(Array.from({ length: 10_000 }, (_, i) => job(10_000 - i)));
    expect(rows().length).toBeGreaterThan(10);
    expect(rows().length).toBeLessThan(80);
    const gap = document.querySelector<HTMLElement>("tbody tr[aria-hidden]");
    expect(parseFloat(gap?.style.height ?? "0")).toBeGreaterThan(300_000);
    expect(document.querySelector("table")?.getAttribute("aria-rowcount")).toBe("10001");
    expect(rows()[0]?.getAttribute("aria-rowindex")).toBe("2");
  });

  it("reads on when the end of what is loaded comes near", async () => {
    await show([job(3), job(2)], ["state"], true);
    expect(readMore).toHaveBeenCalled();
    expect(document.querySelector("table")?.getAttribute("aria-rowcount")).toBe("-1");
  });

  it("reads no further while its end is far", async () => {
    await show(Array.from({ length: 500 }, (_, i) => job(500 - i)), ["state"], true);
    expect(readMore).not.toHaveBeenCalled();
  });

  it("has the columns that were chosen, in words for narrow screens too", async () => {
    await show([job(1)], ["labels", "throughput", "waited"]);
    expect([...document.querySelectorAll("th")].map((head) => head.textContent)).toEqual(["Job", "Labels", "Throughput", "Waited"]);
    expect([...document.querySelectorAll("td[data-l]")].map((cell) => cell.getAttribute("data-l"))).toEqual(["Labels", "Throughput", "Waited"]);
    expect(rows()[0]?.textContent).toContain("sweep=7");
    expect(rows()[0]?.querySelector<HTMLAnchorElement>("a.chip")?.getAttribute("href")).toBe("/jobs?label=sweep%3A7");
  });
});

describe("a selection", () => {
  it("takes single rows, all between two, all, and none", async () => {
    await show([5, 4, 3, 2, 1].map((number) => job(number)));
    expect(document.querySelector("[aria-label='Selected jobs']")).toBeNull();
    await press(box("Select job 5"));
    expect(document.body.textContent).toContain("1 job selected");
    await press(box("Select job 3"), { shiftKey: true });
    expect(document.body.textContent).toContain("3 jobs selected");
    await press(box("Select none"));
    expect(document.body.textContent).not.toContain("selected");
    await press(box("Select all shown"));
    expect(document.body.textContent).toContain("5 jobs selected");
    await press(named("Select none"));
    expect(document.body.textContent).not.toContain("selected");
  });

  it("says what cancelling does, asks, and shows what each job answered", async () => {
    answer = { succeeded: 1, refused: 1, results: [{ id: "3", number: 3, status: 200, detail: null, made: null }, { id: "2", number: 2, status: 409, detail: "#2 has already ended.", made: null }] };
    await show([job(3), job(2), job(1, { state: "succeeded", can_cancel: false })]);
    await press(box("Select all shown"));
    await press(named("Cancel"));
    expect(sent).toEqual([]);
    expect(document.body.textContent).toContain("2 of 3 can be cancelled; #1 has ended.");
    expect(document.body.textContent).toContain("2 have trained");
    await press(named("Cancel 2 jobs"));
    expect(sent.map(({ path, body }) => ({ path, body }))).toEqual([{ path: "/api/v1/jobs/bulk", body: { action: "cancel", ids: [3, 2] } }]);
    expect(document.body.textContent).toContain("1 of 2 are cancelled.");
    expect(document.body.textContent).toContain("#2 was not: #2 has already ended.");
  });

  it("sends a resubmission with a key, and leads to what it made", async () => {
    answer = { succeeded: 1, refused: 0, results: [{ id: "3", number: 3, status: 201, detail: null, made: 9 }] };
    await show([job(3)]);
    await press(box("Select job 3"));
    await press(named("Resubmit"));
    await press(named("Resubmit 1 job"));
    expect(sent[0]?.key).toMatch(/^[0-9a-f]{32}$/);
    expect(document.querySelector("[role=dialog] a[href='/jobs/9']")?.textContent).toBe("#9");
  });

  it("compares two to four", async () => {
    await show([5, 4, 3, 2, 1].map((number) => job(number)));
    await press(box("Select job 5"));
    expect(named("Compare").disabled).toBe(true);
    await press(box("Select job 4"));
    expect(named("Compare").disabled).toBe(false);
    await press(box("Select none"));
    await press(box("Select all shown"));
    expect(named("Compare").disabled).toBe(true);
  });
});
