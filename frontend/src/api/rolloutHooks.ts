import { keepPreviousData, useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { ApiError, get, send, url } from "./client";
import { usePages } from "./pages";
import type { GuardCheck, Page, Rollout, RolloutDetail, RolloutProposal, ShadowDecision } from "./types";

const OFTEN_MS = 3_000;

/** The one that is in the shadow or under guard, if any. */
export const useOpenRollout = () =>
  useQuery({
    queryKey: ["rollout", "open"],
    queryFn: async ({ signal }) => (await get<Page<Rollout>>("rollouts", { open: true, limit: 1 }, signal)).results[0] ?? null,
    refetchInterval: 10_000,
  });

export const useRollouts = () => usePages<Rollout>("rollouts", { limit: 10 }, { everyMs: 10_000 });

export const isOpen = (rollout: Pick<Rollout, "phase">) => rollout.phase === "shadow" || rollout.phase === "live";

export const useRollout = (id: string) =>
  useQuery({
    queryKey: ["rollout", id],
    queryFn: ({ signal }) => get<RolloutDetail>(`rollouts/${id}`, {}, signal),
    refetchInterval: ({ state }) => (!state.data || isOpen(state.data) ? OFTEN_MS : false),
  });

export const useShadowDecisions = (id: string, open: boolean) => usePages<ShadowDecision>(`rollouts/${id}/decisions`, { limit: 10 }, { everyMs: open ? OFTEN_MS : 0 });

export const useGuardChecks = (id: string, open: boolean) =>
  useQuery({
    queryKey: ["rollout", id, "checks", open],
    queryFn: async ({ signal }) => (await get<{ checks: GuardCheck[] }>(`rollouts/${id}/checks`, {}, signal)).checks,
    refetchInterval: open ? OFTEN_MS : false,
  });

export type Source = { trial: string } | { rollout: string };

/** What a policy would be held against, and the version of the policy in force that it was read with. */
export const useProposal = (source: Source, guardS: number) =>
  useQuery({
    queryKey: ["rollout", "proposal", source, guardS],
    queryFn: async ({ signal }) => {
      const [proposal, tag] = await Promise.all([get<RolloutProposal>("rollouts/proposal", { ...source, guard_s: guardS }, signal), policyTag(signal)]);
      return { proposal, tag };
    },
    placeholderData: keepPreviousData, // fields keep what they say while it is asked for another time
    staleTime: Infinity, // what somebody reads while they decide
    gcTime: 0,
  });

async function policyTag(signal: AbortSignal): Promise<string> {
  const response = await fetch(url("policy"), { signal, headers: { Accept: "application/json" }, credentials: "same-origin" });
  if (!response.ok) throw new ApiError({ status: response.status, title: `The portal answered ${response.status}.` });
  return response.headers.get("ETag") ?? "";
}

function useRolloutChange<T>(change: (input: T) => Promise<RolloutDetail>) {
  const client = useQueryClient();
  return useMutation({
    mutationFn: change,
    onSuccess: () => Promise.all([["rollout"], ["pages", "rollouts"], ["policy"]].map((queryKey) => client.invalidateQueries({ queryKey }))),
  });
}

export interface Guard {
  guard_s: number;
  least_jobs: number;
  bounds: { wait_p95_s: { most: number } | null; slowdown_variance: { most: number } | null; utilisation: { least: number } | null };
}

export const useShadow = () => useRolloutChange((trial: string) => send<RolloutDetail>("POST", "rollouts", { mode: "shadow", trial }));

/** From a result at once, or from the shadow; refused where the policy in force is no longer the one that was read. */
export const usePromote = () =>
  useRolloutChange(({ source, guard, tag }: { source: Source; guard: Guard; tag: string }) => {
    const headers = tag ? { "If-Match": tag } : undefined;
    return "trial" in source
      ? send<RolloutDetail>("POST", "rollouts", { mode: "live", trial: source.trial, ...guard }, headers)
      : send<RolloutDetail>("POST", `rollouts/${source.rollout}/promote`, guard, headers);
  });

export type Step = "keep" | "roll-back" | "cancel";
export const useRolloutStep = () => useRolloutChange(({ id, step }: { id: string; step: Step }) => send<RolloutDetail>("POST", `rollouts/${id}/${step}`));
