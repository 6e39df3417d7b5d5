import type { Event } from "../../api/types";
import type { IconName } from "../../components/icons";
import { JOB_STATES, type Glyph } from "./jobState";

type Mark = { glyph: Glyph; colour: string } | { icon: IconName; colour: string };

const ofState = (state: keyof typeof JOB_STATES): Mark => ({ glyph: JOB_STATES[state].glyph, colour: JOB_STATES[state].colour });
const quiet = (icon: IconName): Mark => ({ icon, colour: "var(--ink-3)" });

const MARKS: Record<string, Mark> = {
  submitted: ofState("queued"),
  accepted: ofState("queued"),
  stopped_empty: ofState("queued"),
  unassigned: ofState("queued"),
  assigned: ofState("starting"),
  gpus_free: ofState("starting"),
  first_step_ready: ofState("running"),
  protection_ended: ofState("running"),
  reallocated: ofState("rescaling"),
  checkpointed: ofState("rescaling"),
  stopped_reassigned: ofState("rescaling"),
  steps_done: ofState("succeeded"),
  fail: ofState("failed"),
  cancel: ofState("cancelled"),
  round: quiet("scales"),
  policy_changed: quiet("sliders"),
  engine_away: { icon: "warn", colour: "var(--bad)" },
  engine_back: { icon: "node", colour: "var(--good)" },
  node_lost: { icon: "warn", colour: "var(--bad)" },
  node_drained: { icon: "warn", colour: "var(--warn)" },
  node_drain_due: { icon: "warn", colour: "var(--warn)" },
  idle: { icon: "warn", colour: "var(--warn)" },
  pace_missed: { icon: "warn", colour: "var(--warn)" },
  node_check_failed: { icon: "warn", colour: "var(--bad)" },
  node_faulty: { icon: "warn", colour: "var(--warn)" },
  node_check_waived: { icon: "warn", colour: "var(--warn)" },
  node_checked: { icon: "node", colour: "var(--good)" },
  node_joined: { icon: "node", colour: "var(--good)" },
  node_back: { icon: "node", colour: "var(--good)" },
  node_resumed: { icon: "node", colour: "var(--good)" },
  notice: quiet("flag"),
};

export function eventMark(event: Pick<Event, "kind">): Mark {
  return MARKS[event.kind.toLowerCase()] ?? quiet("flag");
}
