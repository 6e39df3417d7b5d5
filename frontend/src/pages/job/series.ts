import { clock, number } from "../../lib/format";
import type { JobTimeline, Metrics } from "../../api/types";

/** Columns for a chart: seconds, values, predictions, and the step beside each value. */
export interface ChartData {
  times: number[];
  values: (number | null)[];
  predicted: (number | null)[];
  steps: (number | null)[];
}

/** Puts measured points and predictions on one time axis; a rescale breaks the line. */
export function alignSeries(points: [number, number, number][], predictions: Metrics["predicted_steps_per_s"], rescales: JobTimeline["resizes"]): ChartData {
  const rows = new Map<number, { value: number | null; predicted: number | null; step: number | null }>();
  const row = (at: number) => {
    const known = rows.get(at);
    if (known) return known;
    const made = { value: null, predicted: null, step: null };
    rows.set(at, made);
    return made;
  };
  for (const [at, step, value] of points) Object.assign(row(at), { value, step });
  const sorted = predictions.map(([at, value]) => ({ at, value })).sort((a, b) => a.at - b.at);
  for (const { at, value } of sorted) row(at).predicted = value;
  const breaks = new Set(rescales.map((rescale) => Date.parse(rescale.at) / 1000));
  for (const at of breaks) row(at);
  const times = [...rows.keys()].sort((a, b) => a - b);
  const data: ChartData = { times, values: [], predicted: [], steps: [] };
  let next = 0;
  let held: number | null = null;
  for (const at of times) {
    while (sorted[next] && sorted[next]!.at <= at) held = sorted[next++]!.value;
    const entry = rows.get(at)!;
    data.values.push(breaks.has(at) ? null : entry.value);
    data.predicted.push(breaks.has(at) ? null : held);
    data.steps.push(entry.step);
  }
  return bridged(data, breaks);
}

/** One sample is no line: what is said in place of a chart. */
export function oneSample(points: [number, number, number][], unit: string): string | null {
  const [only, more] = points;
  if (!only || more) return null;
  return `One sample so far: ${number(only[2])}${unit && ` ${unit}`} at ${clock(new Date(only[0] * 1000), true)}.`;
}

/** A row that only a prediction needs must not tear the measured line. */
function bridged(data: ChartData, breaks: Set<number>): ChartData {
  let before: number | null = null;
  const lastValue = data.values.findLastIndex((value) => value !== null);
  const values = data.values.map((value, i) => {
    if (breaks.has(data.times[i] ?? NaN)) return (before = null);
    if (value !== null) return (before = value);
    return i < lastValue ? before : null;
  });
  return { ...data, values };
}
