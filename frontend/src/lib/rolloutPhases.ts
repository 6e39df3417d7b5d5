import type { Rollout } from "../api/types";

export const PHASE_WORDS: Record<Rollout["phase"], string> = {
  shadow: "in the shadow", live: "under guard", kept: "kept", rolled_back: "rolled back", cancelled: "cancelled", superseded: "overtaken",
};
export const PHASE_CHIPS: Record<Rollout["phase"], string> = { shadow: "chip acc", live: "chip warn", kept: "chip good", rolled_back: "chip bad", cancelled: "chip", superseded: "chip" };
