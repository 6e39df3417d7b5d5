import type { JobArray } from "../api/types";
import { JOB_STATES, STATE_ORDER, type JobState } from "./jobState";

/** States that some of its jobs are in, in the order of states, and how many have ended. */
export function arrayCounts(found: JobArray["states"]): { states: [JobState, number][]; ended: number; size: number } {
  const states = STATE_ORDER.map((state): [JobState, number] => [state, found[state] ?? 0]).filter(([, jobs]) => jobs > 0);
  const sum = (rows: [JobState, number][]) => rows.reduce((total, [, jobs]) => total + jobs, 0);
  return { states, ended: sum(states.filter(([state]) => JOB_STATES[state].ended)), size: sum(states) };
}
