import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { get } from "./client";
import type { EndedSlowdowns, Fairness, FairnessHistory } from "./types";

export type FairnessBy = "cluster" | "project" | "user";
export type EndedGroupBy = "project" | "user" | "month";

export const useFairness = (project: string) =>
  useQuery({ queryKey: ["fairness", project], queryFn: ({ signal }) => get<Fairness>("fairness", { project }, signal), placeholderData: keepPreviousData, refetchInterval: 15_000 });

const since = (seconds: number) => new Date(Date.now() - seconds * 1000).toISOString();

/** The last so many seconds, up to now each time that it is asked. */
export const useFairnessHistory = (by: FairnessBy, seconds: number, project: string, points: number) =>
  useQuery({
    queryKey: ["fairness", "history", by, seconds, project, points],
    queryFn: ({ signal }) => get<FairnessHistory>("fairness/history", { by, project, points, from_at: since(seconds), limit: by === "cluster" ? 1 : 20 }, signal),
    placeholderData: keepPreviousData,
    refetchInterval: 60_000,
  });

export const useEndedSlowdowns = (by: EndedGroupBy, seconds: number, project: string) =>
  useQuery({
    queryKey: ["fairness", "ended", by, seconds, project],
    queryFn: ({ signal }) => get<EndedSlowdowns>("fairness/ended", { group_by: by, project, from_at: since(seconds), limit: 50 }, signal),
    // Keys of one grouping make no sense in another.
    placeholderData: (known, query) => (query?.queryKey[2] === by ? known : undefined),
    refetchInterval: 60_000,
  });
