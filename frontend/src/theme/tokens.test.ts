import { describe, expect, it } from "vitest";
import { JOB_STATES } from "../lib/job/jobState";
import { contrast, inkOn, JOB_COLOURS, TOKENS, type Scheme } from "./tokens";

const SURFACES = ["surface", "canvas", "sunken", "hover"];

describe.each<Scheme>(["light", "dark"])("%s contrasts", (scheme) => {
  const tokens = TOKENS[scheme];
  const on = (name: string, ground: string) => contrast(tokens[name]!, tokens[ground]!);

  it.each(["ink", "ink-2", "ink-3", "accent", "good", "warn", "bad"])("%s reads on every surface", (name) => {
    for (const ground of SURFACES) expect(on(name, ground), ground).toBeGreaterThanOrEqual(4.5);
  });

  it.each(["good", "warn", "bad", "accent"])("%s reads on its soft ground", (name) => expect(on(name, `${name}-soft`)).toBeGreaterThanOrEqual(4.5));

  it("ink-3 reads on accent-soft, the lowest of all", () => expect(on("ink-3", "accent-soft")).toBeGreaterThanOrEqual(4.55));
  it("the button reads", () => expect(on("btn", "btn-ink")).toBeGreaterThanOrEqual(7));

  it.each(Object.values(JOB_STATES))("state $word reads on every surface", ({ colour }) => {
    const name = colour.slice("var(--".length, -1);
    for (const ground of SURFACES) expect(on(name, ground), ground).toBeGreaterThanOrEqual(4.8);
  });

  it.each(JOB_COLOURS[scheme].map((colour, index) => ({ index, colour })))("job $index stands out and carries its label", ({ colour }) => {
    expect(contrast(colour, tokens.surface!)).toBeGreaterThanOrEqual(3);
    expect(contrast(colour, inkOn(colour))).toBeGreaterThanOrEqual(4.5);
  });
});
