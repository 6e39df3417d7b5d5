import type { KeptRound, Replay, RoundJob } from "../../api/types";
import { capital, count, gangWords } from "../../lib/format";

type Gang = RoundJob["after"];

export const gangText = (gang: Gang) => (gang === null ? "none" : gangWords(gang));

/** What a round did, in words. */
export function movesWords(moves: KeptRound["moves"]): string {
  const parts = [
    moves.start > 0 ? `${count(moves.start, "start")}` : "",
    moves.rescale > 0 ? `${count(moves.rescale, "rescale")}` : "",
    moves.preempt > 0 ? `${moves.preempt} preempted` : "",
  ].filter(Boolean);
  return parts.length > 0 ? parts.join(", ") : "nothing moved";
}

/** What another plan would have been, against the recorded one. */
export function replayWords(replay: Replay): string {
  if (replay.same_plan) return "The same plan, to its last letter.";
  if (replay.same_gpus) return "Every job has the same GPUs; reasons or figures differ.";
  const { gained = 0, lost = 0, moved = 0, same = 0 } = replay.changes;
  const parts = [gained > 0 ? `${gained} would have more GPUs` : "", lost > 0 ? `${lost} fewer` : "", moved > 0 ? `${moved} others` : ""].filter(Boolean);
  return `Of ${count(replay.jobs_total, "job")} ${parts.join(", ")}; ${same === 0 ? "none has the same" : `${same} the same`}.`;
}

export const CHANGE_WORDS: Record<string, string> = { gained: "gained", lost: "lost", moved: "moved", same: "same" };
export const CHANGE_CHIPS: Record<string, string> = { gained: "chip good", lost: "chip bad", moved: "chip acc", same: "chip" };

/** Figures of a plan that people can read: names with their units apart. */
export const figureName = (key: string) => capital(key.replaceAll("_", " ").replace(/\bgpus\b/, "GPUs"));
