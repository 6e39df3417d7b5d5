import type { JobCost, JobDetail, Metrics } from "../../api/types";
import { duration, gangWords, integer, money, number, percent, THIN, withUnit } from "../../lib/format";
import { MOST_COMPARED } from "../../lib/job/jobActions";
import { ORDER, type JobFile } from "../../lib/jobfile/jobFile";
import { meanSpeed } from "../../lib/job/jobView";

const NONE = "–";

/** "12,15" as references, each once and only so many. */
export function referencesOf(text: string | null): string[] {
  const named = (text ?? "").split(/[\s,]+/).map((part) => part.replace(/^#/, "")).filter((part) => /^\d{1,18}(_\d{1,6})?$/.test(part));
  return [...new Set(named)].slice(0, MOST_COMPARED);
}

/** One line of a table with a column per job. */
export interface Line {
  name: string;
  values: (string | null)[];
  differs: boolean;
}

/** What they differ in, in words. */
export function differenceWords(lines: Line[]): string {
  const names = lines.filter((one) => one.differs).map((one) => one.name);
  if (names.length === 0) return "have the same job file";
  const shown = names.slice(0, 4);
  const rest = names.length - shown.length;
  if (rest > 0) return `differ in ${names.length} parameters: ${shown.join(", ")} and ${rest} more`;
  return `differ in ${shown.length === 1 ? shown[0] : `${shown.slice(0, -1).join(", ")} and ${shown.at(-1)}`}`;
}

const line = (name: string, values: (string | null)[]): Line => ({ name, values, differs: values.some((value) => value !== values[0]) });

/** Keys of a job file with dots between, and their values as text. */
export function flatten(file: JobFile, prefix = ""): Map<string, string> {
  const found = new Map<string, string>();
  for (const [key, value] of Object.entries(file)) {
    const path = prefix ? `${prefix}.${key}` : key;
    if (value === null || value === undefined) continue;
    if (Array.isArray(value)) {
      if (value.length > 0) found.set(path, value.map((part) => (typeof part === "object" ? JSON.stringify(part) : String(part))).join(", "));
    } else if (typeof value === "object") for (const [inner, text] of flatten(value as JobFile, path)) found.set(inner, text);
    else found.set(path, String(value));
  }
  return found;
}

const place = (path: string) => {
  const at = ORDER.indexOf(path.split(".")[0] ?? "");
  return at < 0 ? ORDER.length : at;
};

/** Their job files side by side, in the order in which one writes them. */
export function parameters(files: JobFile[]): Line[] {
  const flat = files.map((file) => flatten(file));
  const paths = [...new Set(flat.flatMap((one) => [...one.keys()]))];
  paths.sort((a, b) => place(a) - place(b) || a.localeCompare(b));
  return paths.map((path) => line(path, flat.map((one) => one.get(path) ?? null)));
}

const shown = (value: number | null | undefined, write: (value: number) => string) => (value === null || value === undefined ? NONE : write(value));

/** What came of them; a cost that is not there yet is left open. */
export function figures(jobs: JobDetail[], costs: (JobCost | undefined)[]): Line[] {
  const each = (name: string, write: (job: JobDetail, cost: JobCost | undefined) => string) => line(name, jobs.map((job, i) => write(job, costs[i])));
  return [
    each("State", (job) => job.state),
    each("Progress", (job) => percent(job.progress)),
    each("Steps made", (job) => `${integer(job.step)} of ${integer(job.total_steps)}`),
    each("Waited", (job) => duration(job.times.queueing_s)),
    each("Launching", (job) => duration(job.times.launching_s)),
    each("In training", (job) => duration(job.times.running_s)),
    each("Mean throughput", (job) => shown(meanSpeed(job), (value) => withUnit(number(value), "steps/s"))),
    each("Slowdown", (job) => shown(job.slowdown, (value) => `${number(value, 2)}${THIN}×`)),
    each("Resizes", (job) => integer(job.resizes)),
    each("GPUs allocated now", (job) => (job.allocation ? gangWords(job.allocation) : NONE)),
    each("GPU-hours", (_, cost) => shown(cost?.gpu_hours, (value) => withUnit(number(value), "h"))),
    each("Cost", (job, cost) => money(cost?.so_far ?? job.cost.so_far, cost?.currency ?? job.cost.currency)),
  ];
}

export const SPEED = "steps_per_s";
/** Beside its colour each line has its own dash: two numbers may share a colour. */
export const DASHES: number[][] = [[], [9, 4], [2, 3], [10, 3, 2, 3]];

/** What any of them reported: throughput, loss, then what most of them have. */
export function metricNames(found: (Metrics | undefined)[]): string[] {
  const counts = new Map<string, number>();
  for (const metrics of found) for (const name of Object.keys(metrics?.series ?? {})) counts.set(name, (counts.get(name) ?? 0) + 1);
  const rank = (name: string) => (name === SPEED ? 0 : name === "loss" ? 1 : 2);
  return [...counts.keys()].sort((a, b) => rank(a) - rank(b) || (counts.get(b) ?? 0) - (counts.get(a) ?? 0) || a.localeCompare(b));
}

/** Columns of a chart over steps, one for each job. */
export interface StepChart {
  steps: number[];
  values: (number | null)[][];
}

/** On one axis of steps. A step that was made twice, after a restart, has the later value. */
export function overSteps(series: ([number, number, number][] | undefined)[]): StepChart {
  const columns = series.map((points) => {
    const byStep = new Map<number, { at: number; value: number }>();
    for (const [at, step, value] of points ?? []) {
      const known = byStep.get(step);
      if (!known || known.at <= at) byStep.set(step, { at, value });
    }
    return byStep;
  });
  const steps = [...new Set(columns.flatMap((column) => [...column.keys()]))].sort((a, b) => a - b);
  return { steps, values: columns.map((column) => steps.map((step) => column.get(step)?.value ?? null)) };
}

/** The newest value of each at a step or before it: what stands under the pointer. */
export function valuesAt(chart: StepChart, index: number): (number | null)[] {
  return chart.values.map((column) => {
    for (let i = index; i >= 0; i -= 1) {
      const value = column[i];
      if (value !== null && value !== undefined) return value;
    }
    return null;
  });
}
