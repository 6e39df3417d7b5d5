import { MantineProvider } from "@mantine/core";
import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { act, type ReactNode } from "react";
import { createRoot, type Root } from "react-dom/client";
import { MemoryRouter } from "react-router";
import { vi } from "vitest";
import { createLiveStore, LiveContext } from "../lib/live/liveContext";

export interface Sent {
  path: string;
  method: string;
  body: unknown;
}
export type Answers = (sent: Sent) => { status?: number; body?: unknown } | undefined;

export const pageOf = (...results: unknown[]) => ({ body: { next: null, previous: null, results } });
export const refusal = (field: string, message: string, status = 400) => ({ status, body: { status, detail: `${field} ${message}`, errors: [{ field, message, code: "wrong" }] } });

type Control = HTMLInputElement | HTMLSelectElement | HTMLTextAreaElement;

/** A part of a page in a document of its own; what it asks is answered by the test. What no test answers is an empty list. */
export class TestPage {
  readonly sent: Sent[] = [];
  private readonly root: Root;

  constructor(answers: Answers) {
    (globalThis as { IS_REACT_ACT_ENVIRONMENT?: boolean }).IS_REACT_ACT_ENVIRONMENT = true;
    window.matchMedia = ((query: string) => ({ matches: false, media: query, addEventListener: () => {}, removeEventListener: () => {}, addListener: () => {}, removeListener: () => {} })) as unknown as typeof window.matchMedia;
    globalThis.ResizeObserver = class { observe() {} unobserve() {} disconnect() {} };
    vi.stubGlobal("fetch", async (path: string, init: RequestInit) => {
      const sent = { path: path.replace("/api/v1/", ""), method: init.method ?? "GET", body: init.body ? (JSON.parse(String(init.body)) as unknown) : undefined };
      this.sent.push(sent);
      const { status = 200, body = pageOf().body } = answers(sent) ?? {};
      return new Response(status === 204 ? null : JSON.stringify(body), { status, headers: { "Content-Type": "application/json" } });
    });
    document.body.innerHTML = "<div id='root'></div>";
    this.root = createRoot(document.getElementById("root") as HTMLElement);
  }

  async show(shown: ReactNode, at = "/"): Promise<void> {
    const client = new QueryClient({ defaultOptions: { queries: { retry: false } } });
    const live = createLiveStore(() => {});
    await act(async () => this.root.render(
      <MantineProvider env="test"><QueryClientProvider client={client}><LiveContext value={live}><MemoryRouter initialEntries={[at]}>{shown}</MemoryRouter></LiveContext></QueryClientProvider></MantineProvider>,
    ));
    await this.settle();
  }

  async settle(ms = 0): Promise<void> {
    for (let round = 0; round < 3; round += 1) await act(async () => { await new Promise((done) => { setTimeout(done, ms); }); });
  }

  async end(): Promise<void> {
    await act(async () => this.root.unmount());
    vi.unstubAllGlobals();
  }

  /** What was sent to change something. */
  get changes(): Sent[] {
    return this.sent.filter((one) => one.method !== "GET");
  }

  get text(): string {
    return document.body.textContent ?? "";
  }

  /** A button by what it reads or is called, in the dialog where one is open. */
  button(name: string): HTMLButtonElement {
    const within = document.querySelector('[role="dialog"]') ?? document;
    const found = [...within.querySelectorAll("button")].find((one) => one.textContent === name || one.getAttribute("aria-label") === name);
    if (!found) throw new Error(`There is no button ${name}.`);
    return found;
  }

  async press(name: string): Promise<void> {
    const button = this.button(name);
    await act(async () => { button.focus(); button.click(); });
    await this.settle();
  }

  field(label: string): Control {
    const found = [...document.querySelectorAll("label")].find((one) => one.textContent === label);
    const field = found ? document.getElementById(found.htmlFor) : document.querySelector(`[aria-label="${label}"]`);
    if (!field) throw new Error(`There is no field ${label}.`);
    return field as Control;
  }

  async tick(label: string): Promise<void> {
    const field = this.field(label);
    await act(async () => field.click());
    await this.settle();
  }

  async fill(label: string, value: string): Promise<void> {
    const field = this.field(label);
    const kind = [HTMLSelectElement, HTMLTextAreaElement].find((one) => field instanceof one) ?? HTMLInputElement;
    await act(async () => {
      Object.getOwnPropertyDescriptor(kind.prototype, "value")?.set?.call(field, value);
      field.dispatchEvent(new Event(kind === HTMLSelectElement ? "change" : "input", { bubbles: true }));
    });
  }

  /** What stands at a field as wrong. */
  wrong(label: string): string | null {
    const at = this.field(label).getAttribute("aria-describedby");
    return at === null ? null : (document.getElementById(at)?.textContent ?? null);
  }
}
