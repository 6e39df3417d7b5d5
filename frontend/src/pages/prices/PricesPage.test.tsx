// @vitest-environment jsdom
import { afterEach, expect, it, vi } from "vitest";
import type { Session } from "../../api/types";
import { pageOf, refusal, TestPage } from "../../testing/page";
import PricesPage from "./PricesPage";

vi.mock("../../shell/TopBar", () => ({ TopBar: () => null }));

const session = { user: { is_admin: true }, currency: "USD" } as unknown as Session;
const rate = (id: number, type: string, price: string, from: string, to: string | null = null) => ({ id, resource: "gpu", accelerator_type: type, price_per_hour: price, currency: "USD", valid_from_at: from, valid_to_at: to });

let page: TestPage;
afterEach(() => page.end());

async function show(): Promise<void> {
  page = new TestPage((sent) => {
    if (sent.method === "POST") return refusal("valid_from_at", "begins in the past", 409);
    if (sent.path.startsWith("prices?ended=true")) return pageOf(rate(3, "k1", "9", "2020-01-01T00:00:00Z", "2020-02-01T00:00:00Z"));
    return sent.path.startsWith("prices?") ? pageOf(rate(2, "k1", "2.125000", "2100-01-01T00:00:00Z"), rate(1, "k1", "0.600000", "2020-02-01T00:00:00Z", "2100-01-01T00:00:00Z"), rate(4, "h200", "4", "2020-02-01T00:00:00Z")) : undefined;
  });
  await page.show(<PricesPage session={session} />);
}

it("shows what is in force, then what is to come, and what was only when asked", async () => {
  await show();
  expect(document.querySelector("h1")?.textContent).toContain("A GPU-hour costs $0.60 to $4.00, from K1 to H200.");
  const rows = [...document.querySelectorAll("tbody tr")].map((row) => row.textContent ?? "");
  expect(rows.map((row) => /\$[\d.]+/.exec(row)?.[0])).toEqual(["$4.00", "$0.60", "$2.125"]);
  expect(rows[2]).toContain("to come");
  expect(page.text).not.toContain("$9.00");
  await page.press("Show earlier prices");
  expect(page.text).toContain("$9.00");
});

it("sets another price, and says at its field that it would begin in the past", async () => {
  await show();
  await page.press("Set another price of K1");
  await page.fill("Price", "0.75");
  await page.fill("From (empty: now)", "2020-05-01T12:00");
  await page.press("Save");
  const at = new Date(2020, 4, 1, 12).toISOString();
  expect(page.changes).toEqual([{ path: "prices", method: "POST", body: { resource: "gpu", accelerator_type: "k1", price_per_hour: "0.75", valid_from_at: at } }]);
  expect(page.wrong("From (empty: now)")).toBe("begins in the past");
});
