import { useMutation, useQuery } from "@tanstack/react-query";
import { get, request, send, url } from "./client";
import { usePages } from "./pages";
import type { KeptRound, Replay, ReplayAnswer, RoundDetail } from "./types";

export interface RoundFilters {
  from_at?: string;
  to_at?: string;
  moved?: string;
}

export const useRounds = (filters: RoundFilters) => usePages<KeptRound>("rounds", { limit: 50, ...filters });

/** A kept round never changes. */
export const useRound = (number: string) =>
  useQuery({ queryKey: ["round", number], queryFn: ({ signal }) => get<RoundDetail>(`rounds/${number}`, {}, signal), staleTime: Infinity });

const POLL_MS = 400;
/** Planning takes a minute at most; others' replays may be before it. */
const MOST_POLLS = 300;

/** Plans a round again: asked for, and then asked after until it is there. */
export const useReplay = (number: string) =>
  useMutation({
    mutationFn: async (wish: { policy: string; parameters: Record<string, unknown> }): Promise<Replay> => {
      const { replay } = await send<{ replay: string }>("POST", `rounds/${number}/replay`, wish);
      for (let poll = 0; poll < MOST_POLLS; poll += 1) {
        const answer = await request<ReplayAnswer>(url(`replays/${replay}`));
        if (answer.replay) return answer.replay;
        if (answer.status === "failed") throw new Error(answer.error);
        await new Promise((resolve) => { setTimeout(resolve, POLL_MS); });
      }
      throw new Error("The round was not planned in time.");
    },
  });
