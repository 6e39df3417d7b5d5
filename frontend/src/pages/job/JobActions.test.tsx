// @vitest-environment jsdom
import { MantineProvider } from "@mantine/core";
import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { act } from "react";
import { createRoot, type Root } from "react-dom/client";
import { MemoryRouter } from "react-router";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import type { JobDetail, Session } from "../../api/types";
import { JobActions } from "./JobActions";

vi.mock("../../lib/highlight", () => ({ jobMark: () => ({}), jobPaint: () => ({}) }));

const session = { user: { is_admin: false }, projects: [{ key: "vision", name: "Vision", role: "member" }] } as unknown as Session;
const job = (changes: object = {}) => ({
  number: 7, name: "night", project: { key: "vision", name: "Vision" }, state: "running", can_cancel: true, hold: null, labels: {}, total_steps: 100, step: 0,
  nice: 0, priority: 0, max_cost: null, max_duration_s: null, deadline_at: null, spec: {}, links: [], checkpoints: [], ...changes,
}) as unknown as JobDetail;

let root: Root;
let sent: { path: string; method: string; body: unknown }[];

beforeEach(() => {
  (globalThis as { IS_REACT_ACT_ENVIRONMENT?: boolean }).IS_REACT_ACT_ENVIRONMENT = true;
  window.matchMedia = ((query: string) => ({ matches: false, media: query, addEventListener: () => {}, removeEventListener: () => {}, addListener: () => {}, removeListener: () => {} })) as unknown as typeof window.matchMedia;
  globalThis.ResizeObserver = class { observe() {} unobserve() {} disconnect() {} };
  sent = [];
  vi.stubGlobal("fetch", async (path: string, init: RequestInit) => {
    sent.push({ path, method: init.method ?? "GET", body: JSON.parse(String(init.body)) });
    return new Response("{}", { status: 200, headers: { "Content-Type": "application/json" } });
  });
  document.body.innerHTML = "<div id='root'></div>";
  root = createRoot(document.getElementById("root") as HTMLElement);
});

afterEach(async () => {
  await act(async () => root.unmount());
  vi.unstubAllGlobals();
});

async function show(shown: JobDetail): Promise<void> {
  await act(async () => root.render(
    <MantineProvider env="test"><QueryClientProvider client={new QueryClient()}><MemoryRouter><JobActions job={shown} session={session} /></MemoryRouter></QueryClientProvider></MantineProvider>,
  ));
}
const buttons = () => [...document.querySelectorAll("button")];
const named = (name: string) => buttons().find((button) => button.textContent === name) as HTMLButtonElement;
async function press(name: string): Promise<void> {
  await act(async () => { named(name).focus(); named(name).click(); });
  await act(async () => { await new Promise((done) => setTimeout(done)); });
}

describe("the actions of a job", () => {
  it("are buttons that the keyboard reaches", async () => {
    await show(job());
    expect(buttons().map((button) => button.textContent)).toEqual(["Hold", "Edit", "Resubmit", "More", "Cancel job"]);
    for (const button of buttons()) {
      button.focus();
      expect(document.activeElement).toBe(button);
    }
  });

  it("ask once more before training stops", async () => {
    await show(job());
    await press("Hold");
    expect(sent).toEqual([]);
    expect(document.body.textContent).toContain("writes a checkpoint");
    await press("Hold the job");
    expect(sent).toEqual([{ path: "/api/v1/jobs/7/hold", method: "POST", body: {} }]);
  });

  it("stop the retries of a job that waits for the next one", async () => {
    await show(job({ state: "queued", retry: { at: "2030-01-01T00:00:00Z", attempt: 2, of: 3, why: "Failed with code 1" } }));
    await press("Stop trying");
    expect(sent).toEqual([{ path: "/api/v1/jobs/7/stop-retrying", method: "POST", body: {} }]);
  });

  it("hold and release what waits at once", async () => {
    await show(job({ state: "queued" }));
    await press("Hold");
    await show(job({ state: "queued", hold: { kind: "user", by: "Ana", at: "", text: "" } }));
    await press("Release");
    expect(sent.map((request) => request.path)).toEqual(["/api/v1/jobs/7/hold", "/api/v1/jobs/7/release"]);
  });

  it("send of an edited job what was changed", async () => {
    await show(job());
    await press("Edit");
    expect(named("Save").disabled).toBe(true);
    const field = document.querySelector<HTMLInputElement>("input[name=total_steps]") as HTMLInputElement;
    const label = document.querySelector(`label[for="${field.id}"]`);
    expect(label?.textContent).toBe("Total steps");
    await act(async () => {
      Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, "value")?.set?.call(field, "250");
      field.dispatchEvent(new Event("input", { bubbles: true }));
    });
    await press("Save");
    expect(sent).toEqual([{ path: "/api/v1/jobs/7", method: "PATCH", body: { total_steps: 250 } }]);
  });
});
