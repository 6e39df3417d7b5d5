import { useMutation, useQueries, useQuery, useQueryClient } from "@tanstack/react-query";
import { get, send } from "./client";
import { usePages } from "./pages";
import type { Guarantee, Limit, Limits, Page } from "./types";

const limitsOf = (project: string) => ({
  queryKey: ["limits", project],
  queryFn: ({ signal }: { signal: AbortSignal }) => get<Limits>(`projects/${encodeURIComponent(project)}/limits`, {}, signal),
  enabled: project !== "",
});

export function useLimits(project: string) {
  return useQuery({ ...limitsOf(project), refetchInterval: 15_000 });
}

/** Budgets of money and GPU-hours that bind somebody in any of their projects, or in one. */
export const useBudgets = (project: string) => usePages<Limit>("budgets", { project, limit: 200 }, { everyMs: 60_000 });

/** What binds somebody in any of these projects, each limit once; undefined until all have answered. */
export function useLimitsOfAll(projects: string[]): { project: string; row: Limit }[] | undefined {
  return useQueries({
    queries: projects.map((project) => ({ ...limitsOf(project), refetchInterval: 60_000 })),
    combine: (answers) => {
      if (answers.some((answer) => answer.isPending)) return undefined;
      const found = answers.flatMap((answer, at) => (answer.data?.results ?? []).map((row) => ({ project: projects[at] ?? "", row })));
      return found.filter((one, at) => found.findIndex((other) => other.row.id === one.row.id) === at);
    },
  });
}

export function useGuarantees() {
  return useQuery({ queryKey: ["guarantees"], queryFn: ({ signal }) => get<Page<Guarantee>>("guarantees", { limit: 200 }, signal), refetchInterval: 15_000 });
}

/** Limits that one may change, on whomever they are. */
export function useMyLimits(enabled: boolean) {
  return useQuery({ queryKey: ["my-limits"], queryFn: ({ signal }) => get<Page<Limit>>("limits", { limit: 200 }, signal), refetchInterval: 15_000, enabled });
}

function useLimitChange<T, R>(change: (input: T) => Promise<R>) {
  const client = useQueryClient();
  return useMutation({
    mutationFn: change,
    onSuccess: () => Promise.all(["limits", "my-limits", "guarantees"].map((key) => client.invalidateQueries({ queryKey: [key] }))),
  });
}

export type LimitWish = Pick<Limit, "project" | "user" | "kind" | "accelerator_type" | "period" | "limit" | "hard">;
export const useAddLimit = () => useLimitChange((wish: LimitWish) => send<Limit>("POST", "limits", wish));
export const useChangeLimit = () => useLimitChange(({ id, ...wish }: { id: number; limit: string; hard: boolean }) => send<Limit>("PUT", `limits/${id}`, wish));
export const useRemoveLimit = () => useLimitChange((id: number) => send<void>("DELETE", `limits/${id}`));

export interface GuaranteeWish {
  gpus: number;
  by_type: Record<string, number>;
  reclaim_within_s: number;
}
const guaranteeOf = (project: string) => `projects/${encodeURIComponent(project)}/guarantee`;
export const useSetGuarantee = () => useLimitChange(({ project, wish }: { project: string; wish: GuaranteeWish }) => send<Guarantee>("PUT", guaranteeOf(project), wish));
export const useRemoveGuarantee = () => useLimitChange((project: string) => send<void>("DELETE", guaranteeOf(project)));
