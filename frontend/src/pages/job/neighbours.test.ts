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
      { number: 8, project: "Speech", gpus: 2, share_percent: 100, nodes: ["b"] },
      { number: 9, project: "Vision", gpus: 2, share_percent: 100, nodes: ["a", "b"] },
    ]);
  });
  it("are all who have a part of a GPU, beside a job with a part and beside one with whole GPUs", () => {
    const parts = [{ job: 21, kind: "running", share_percent: 50 }, { job: 22, kind: "running", share_percent: 30 }];
    const shared = { nodes: { d: node({ 0: { state: "held", job: 21, kind: "running", parts, free_percent: 20 }, 1: { state: "held", job: 23 } }) }, jobs: {} } as unknown as Given;
    const seen = (number: number) => neighboursOf(number, [{ node: "d" }], shared).map((one) => [one.number, one.gpus, one.share_percent]);
    expect(seen(23)).toEqual([[21, 1, 50], [22, 1, 30]]);
    expect(seen(22)).toEqual([[23, 1, 100], [21, 1, 50]]);
  });
  it("are nobody where it is alone, nodes are unknown or nothing is known yet", () => {
    expect(neighboursOf(10, [{ node: "c" }], cluster)).toEqual([]);
    expect(neighboursOf(7, [{ node: "gone" }], cluster)).toEqual([]);
    expect(neighboursOf(7, [{ node: "a" }], null)).toEqual([]);
  });
});
