import { describe, expect, it } from "vitest";
import type { JobDetail, Metrics } from "../../api/types";
import { meanSpeed } from "../../lib/job/jobView";
import { differenceWords, figures, flatten, metricNames, overSteps, parameters, referencesOf, valuesAt } from "./compare";

describe("which jobs are compared", () => {
  it("reads numbers and places in arrays, each once, four at most", () => {
    expect(referencesOf("12, 15 #12 57_3,x,,1e3")).toEqual(["12", "15", "57_3"]);
    expect(referencesOf("1,2,3,4,5")).toEqual(["1", "2", "3", "4"]);
    expect(referencesOf(null)).toEqual([]);
  });
});

describe("parameters side by side", () => {
  const files = [
    { name: "a", total_steps: 100, gpus: { min: 1, max: 4, types: [] }, env: { LR: "0.1" }, dependencies: [{ type: "singleton" }] },
    { name: "a", total_steps: 200, gpus: { min: 1, max: null, types: ["h200", "l40s"] } },
  ];

  it("are flat, without what is empty", () => {
    expect([...flatten(files[1]!)]).toEqual([["name", "a"], ["total_steps", "200"], ["gpus.min", "1"], ["gpus.types", "h200, l40s"]]);
  });

  it("mark what differs, also what only one of them has", () => {
    const lines = parameters(files);
    expect(lines.map((line) => [line.name, line.differs])).toEqual([
      ["name", false], ["total_steps", true], ["gpus.max", true], ["gpus.min", false], ["gpus.types", true], ["env.LR", true], ["dependencies", true],
    ]);
    expect(lines.find((line) => line.name === "env.LR")?.values).toEqual(["0.1", null]);
    expect(differenceWords(lines)).toBe("differ in 5 parameters: total_steps, gpus.max, gpus.types, env.LR and 1 more");
    expect(differenceWords(lines.slice(0, 3))).toBe("differ in total_steps and gpus.max");
    expect(differenceWords(parameters([files[0]!, files[0]!]))).toBe("have the same job file");
  });
});

const job = (changes: object = {}) => ({
  state: "succeeded", progress: 1, step: 100, total_steps: 100, times: { queueing_s: 60, launching_s: 5, running_s: 50 }, slowdown: null, resizes: 2, resumed_from: null,
  cost: { so_far: "1.00", currency: "USD" }, ...changes,
}) as unknown as JobDetail;

describe("figures side by side", () => {
  it("are written with their units, and marked where they differ", () => {
    const found = figures([job(), job({ resizes: 0, step: 50, resumed_from: { job: 1, step: 40 }, allocation: { type: "k1", count: 1, share_percent: 50 } })], [undefined, undefined]);
    const line = (name: string) => found.find((one) => one.name === name);
    expect(line("Resizes")).toEqual({ name: "Resizes", values: ["2", "0"], differs: true });
    expect(line("Waited")?.differs).toBe(false);
    expect(line("GPUs allocated now")?.values).toEqual(["–", "50\u2009% of 1\u2009×\u2009K1"]);
    expect(line("GPU-hours")?.values).toEqual(["–", "–"]);
    expect(line("Mean throughput")?.values[0]).toMatch(/^2\.00.steps\/s$/);
  });

  it("count only steps that the job made itself", () => {
    expect(meanSpeed(job({ step: 50, resumed_from: { job: 1, step: 40 } }))).toBeCloseTo(0.2);
    expect(meanSpeed(job({ times: { queueing_s: 0, launching_s: 0, running_s: 0 } }))).toBeNull();
  });
});

describe("metrics over steps", () => {
  it("stand on one axis, the later of two values of a step", () => {
    const chart = overSteps([[[1, 10, 5], [2, 20, 4], [9, 20, 3]], undefined, [[1, 15, 7], [0, 15, 8]]]);
    expect(chart).toEqual({ steps: [10, 15, 20], values: [[5, null, 3], [null, null, null], [null, 7, null]] });
    expect(valuesAt(chart, 1)).toEqual([5, null, 7]);
    expect(valuesAt(chart, 2)).toEqual([3, null, 7]);
    expect(valuesAt(chart, 0)).toEqual([5, null, null]);
  });

  it("begin with throughput and loss, then what most have", () => {
    const of = (...names: string[]) => ({ series: Object.fromEntries(names.map((name) => [name, []])) }) as unknown as Metrics;
    expect(metricNames([of("zeta", "loss", "accuracy"), of("accuracy", "steps_per_s"), undefined])).toEqual(["steps_per_s", "loss", "accuracy", "zeta"]);
    expect(metricNames([])).toEqual([]);
  });
});
