import { expect, test } from "vitest";
import type { Simulation, SimulationColumn, SimulationRow } from "../../api/types";
import { figure, firstTrials, part, standing, sweepValues } from "./lab";

const row = { policy: "fifo_gang", parameters: {}, label: "fifo_gang", role: "candidate", trials: [], values: {}, best: ["jct_s.mean"], worst: ["cost"] } as SimulationRow;
const column = (key: string, better: SimulationColumn["better"]): SimulationColumn => ({ key, label: key, unit: "s", better });

test("typed values of a sweep become numbers, booleans and words", () => {
  expect(sweepValues("0.1, 1, true,perf, ,-2")).toEqual([0.1, 1, true, "perf", -2]);
  expect(sweepValues(" , ")).toEqual([]);
});

test("figures have their unit, and what is not known is said", () => {
  expect(figure(null, "s")).toBe("–");
  expect(figure(0.5, "share")).toContain("50");
  expect(figure(120, "s")).not.toBe("120");
});

test("best and worst are marked only where one of them is better, and never for what really ran", () => {
  expect(standing(row, column("jct_s.mean", "low"))).toBe("best");
  expect(standing(row, column("cost", "low"))).toBe("worst");
  expect(standing(row, column("jct_s.mean", "none"))).toBeNull();
  expect(standing({ ...row, role: "as_it_was" }, column("cost", "low"))).toBeNull();
});

test("one trial of each policy stands for its charts", () => {
  const trial = (id: string, label: string, done: boolean) => ({ id, label, role: "candidate", metrics: done ? {} : null });
  const simulation = { trials: [trial("a", "fifo", true), trial("b", "fifo", true), trial("c", "las", false), trial("d", "las", true)] } as unknown as Simulation;
  expect(firstTrials(simulation).map((one) => one.id)).toEqual(["a", "d"]);
});

test("progress is by jobs where their number is known", () => {
  const progress = { trials: 4, trials_done: 1, jobs: 200, jobs_done: 150, eta_s: null };
  expect(part({ state: "running", progress } as Simulation)).toBe(0.75);
  expect(part({ state: "running", progress: { ...progress, jobs: 0 } } as Simulation)).toBe(0.25);
  expect(part({ state: "succeeded", progress } as Simulation)).toBe(1);
});
