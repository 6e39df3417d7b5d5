import { describe, expect, it } from "vitest";
import { neighboursOf } from "./neighbours";

type Given = NonNullable<Parameters<typeof neighboursOf>[2]>;
const node = (accelerators: Record<string, object>) => ({ accelerators });
const cluster = {
  nodes: {
    a: node({ 0: { state: "held", job: 7 }, 1: { state: "held", job: 9 }, 2: { state: "free" }, 3: { state: "assigned", next: 11 } }),
    b: node({ 0: { state: "held", job: 7 }, 1: { state: "held", job: 8 }, 2: { state: "held", job: 8 }, 3: { state: "held", job: 9 } }),
    c: node({ 0: { state: "held", job: 10 } }),
  },
  jobs: { 8: { number: 8, project: "Speech", state: "running", gpus: 2 }, 9: { number: 9, project: "Vision", state: "running", gpus: 2 } },
} as unknown as Given;

describe("neighbours", () => {
  it("are the jobs that hold GPUs of the same nodes", () => {
    expect(neighboursOf(7, [{ node: "a" }, { node: "b" }], cluster)).toEqual([
      { number: 8, project: "Speech", gpus: 2, nodes: ["b"] },
      { number: 9, project: "Vision", gpus: 2, nodes: ["a", "b"] },
    ]);
  });
  it("are nobody where it is alone, nodes are unknown or nothing is known yet", () => {
    expect(neighboursOf(10, [{ node: "c" }], cluster)).toEqual([]);
    expect(neighboursOf(7, [{ node: "gone" }], cluster)).toEqual([]);
    expect(neighboursOf(7, [{ node: "a" }], null)).toEqual([]);
  });
});
