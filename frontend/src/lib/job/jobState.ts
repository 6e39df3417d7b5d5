import type { CoarseState } from "../../api/types";

export type JobState = CoarseState;
export type Glyph = "ring-dotted" | "arc" | "play" | "arrows" | "tick" | "octagon" | "struck";

export interface Badge {
  word: string;
  glyph: Glyph;
  colour: string;
  ended: boolean;
}

/** The only table of job states: a state missing here does not compile. */
export const JOB_STATES: Record<JobState, Badge> = {
  queued: { word: "Queued", glyph: "ring-dotted", colour: "var(--s-queued)", ended: false },
  starting: { word: "Starting", glyph: "arc", colour: "var(--s-starting)", ended: false },
  running: { word: "Running", glyph: "play", colour: "var(--s-running)", ended: false },
  rescaling: { word: "Rescaling", glyph: "arrows", colour: "var(--s-rescaling)", ended: false },
  succeeded: { word: "Succeeded", glyph: "tick", colour: "var(--s-succeeded)", ended: true },
  failed: { word: "Failed", glyph: "octagon", colour: "var(--s-failed)", ended: true },
  cancelled: { word: "Cancelled", glyph: "struck", colour: "var(--s-cancelled)", ended: true },
};

export const STATE_ORDER = Object.keys(JOB_STATES) as JobState[];

export function hasEnded(state: JobState): boolean {
  return JOB_STATES[state].ended;
}
