import { expect, test } from "vitest";
import { byWhat, inForce, pricedName, startOf } from "./prices";

const now = new Date("2026-11-21T12:00:00Z");
const row = (id: number, from: string, to: string | null) => ({ id, valid_from_at: `2026-11-${from}T12:00:00Z`, valid_to_at: to && `2026-11-${to}T12:00:00Z` });

test("a price is in force from its beginning until the next one's", () => {
  const { present, later } = inForce([row(1, "01", "21"), row(2, "21", "25"), row(3, "29", null), row(4, "25", "29")], now);
  expect(present.map((one) => one.id)).toEqual([2]);
  expect(later.map((one) => one.id)).toEqual([4, 3]);
});

test("GPUs stand first, by name", () => {
  const rows = [{ resource: "memory" as const, accelerator_type: null }, { resource: "gpu" as const, accelerator_type: "titan_xp" }, { resource: "cpu" as const, accelerator_type: null }, { resource: "gpu" as const, accelerator_type: "h200" }];
  expect(byWhat(rows).map(pricedName)).toEqual(["H200", "Titan XP", "CPU", "GiB of memory"]);
});

test("where it holds on one cluster only, that is said", () => {
  const row = { resource: "gpu" as const, accelerator_type: "h200" };
  expect([{ ...row, cluster: null }, { ...row, cluster: "lab" }].map(pricedName)).toEqual(["H200", "H200 on lab"]);
});

test("a field's local time goes to the portal as a moment, and an empty one as now", () => {
  expect(startOf("2026-11-21T12:00")).toBe(new Date(2026, 10, 21, 12).toISOString());
  expect(startOf("")).toBeNull();
});
