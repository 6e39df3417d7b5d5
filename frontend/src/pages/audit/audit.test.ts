import { expect, test } from "vitest";
import { detailText, momentsOf } from "./audit";

test("days are taken from their first to after their last moment", () => {
  expect(momentsOf("2026-11-30", "2026-11-30")).toEqual({ from_at: new Date(2026, 10, 30).toISOString(), to_at: new Date(2026, 11, 1).toISOString() });
});

test("a day that is none is not asked for", () => {
  expect(momentsOf(null, "yesterday")).toEqual({ from_at: "", to_at: "" });
});

test("a detail reads as words, and what it leaves open is left out", () => {
  expect(detailText({ role: "member", by_directory: false, address: null, before: { limit: 3, hard: true }, scopes: ["a", "b"], withdrawn_from: [] }))
    .toBe("role: member, by directory: false, before: (limit: 3, hard: true), scopes: a b, withdrawn from: none");
});
