import type { Simulation, SimulationColumn, SimulationRow, SimulationTrial } from "../../api/types";
import { count, duration, fixed, integer, number, percent } from "../../lib/format";

/** A figure of a result with the unit that its column names. */
export function figure(value: number | null, unit: string): string {
  if (value === null) return "–";
  if (unit === "s") return duration(value);
  if (unit === "share" || unit === "%") return percent(value, 1);
  return Number.isInteger(value) ? integer(value) : Math.abs(value) >= 100 ? fixed(value, 0) : number(value);
}

/** What a row is in its column: the best, the worst, or nothing of note. */
export function standing(row: SimulationRow, column: SimulationColumn): "best" | "worst" | null {
  if (column.better === "none" || row.role === "as_it_was") return null;
  return row.best.includes(column.key) ? "best" : row.worst.includes(column.key) ? "worst" : null;
}

/** Values of a sweep as they were typed, with commas between them: numbers, true and false as such. */
export function sweepValues(text: string): unknown[] {
  return text.split(",").map((part) => part.trim()).filter((part) => part !== "").map((part) => {
    if (part === "true" || part === "false") return part === "true";
    return Number.isFinite(Number(part)) ? Number(part) : part;
  });
}

export const STATE_WORDS: Record<Simulation["state"], string> = {
  queued: "queued", running: "running", succeeded: "done", failed: "failed", cancelled: "cancelled",
};
export const STATE_CHIPS: Record<Simulation["state"], string> = { queued: "chip", running: "chip acc", succeeded: "chip good", failed: "chip bad", cancelled: "chip" };

/** How far a simulation is, between 0 and 1. */
export function part(simulation: Simulation): number {
  const { jobs, jobs_done, trials, trials_done } = simulation.progress;
  if (simulation.state === "succeeded") return 1;
  if (jobs > 0) return Math.min(1, jobs_done / jobs);
  return trials > 0 ? trials_done / trials : 0;
}

export function progressWords(simulation: Simulation): string {
  const { trials, trials_done, eta_s } = simulation.progress;
  if (simulation.state === "queued") return "It waits for the simulations before it.";
  const left = eta_s === null ? "" : `, about ${duration(eta_s)} left`;
  return `${integer(trials_done)} of ${count(trials, "trial")} done${left}`;
}

/** One trial of each policy with results, the first seed. */
export function firstTrials(simulation: Simulation): SimulationTrial[] {
  const seen = new Set<string>();
  return simulation.trials.filter((trial) => {
    const key = `${trial.role}/${trial.label}`;
    if (trial.metrics === null || seen.has(key)) return false;
    seen.add(key);
    return true;
  });
}

export function workloadWords(simulation: Simulation): string {
  const workload = simulation.spec.workload;
  const jobs = simulation.workload_summary ? count(simulation.workload_summary.jobs, "job") : null;
  if (workload.kind === "history") return `${jobs ?? "jobs"} of this cluster's history`;
  if (workload.kind === "trace") return `${jobs ?? "jobs"} of an uploaded trace`;
  return `${jobs ?? count(workload.jobs, "job")} of a synthetic mix`;
}
