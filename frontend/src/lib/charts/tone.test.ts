import { expect, test } from "vitest";
import { contrast } from "../../theme/tokens";
import { fillOf, FILLS, tone, toneHex } from "./tone";

const all = Array.from({ length: FILLS }, (_, i) => i);

test("no two fills are alike", () => {
  expect(FILLS).toBeGreaterThanOrEqual(16);
  expect(new Set(all.map(tone)).size).toBe(FILLS);
});

test.each(["light", "dark"] as const)("greys differ from each other and within each pattern, %s", (scheme) => {
  const solid = all.map(fillOf).filter((fill) => fill.pattern === "solid").map((fill) => toneHex(fill.ink, scheme));
  const steps = [...solid, toneHex(0, scheme)];
  for (const [i, grey] of solid.entries()) expect(contrast(grey, steps[i + 1] ?? grey)).toBeGreaterThan(1.2);
  for (const fill of all.map(fillOf).filter(({ pattern }) => pattern !== "solid")) expect(contrast(toneHex(fill.ink, scheme), toneHex(fill.ground, scheme))).toBeGreaterThan(2);
});
