import { keepPreviousData, useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { get, send } from "./client";
import type { ClusterNode, DrainPreview, NodeDetail, NodeWindow, Page, Partition, Qos } from "./types";

const ALL = { limit: 200 };
const nodePath = (name: string) => `nodes/${encodeURIComponent(name)}`;

export const useNodes = () => useQuery({ queryKey: ["nodes"], queryFn: ({ signal }) => get<ClusterNode[]>("nodes", {}, signal), refetchInterval: 10_000 });
export const useNode = (name: string) =>
  useQuery({ queryKey: ["nodes", name], queryFn: ({ signal }) => get<NodeDetail>(nodePath(name), {}, signal), refetchInterval: 10_000 });
export const usePartitions = () =>
  useQuery({ queryKey: ["partitions"], queryFn: async ({ signal }) => (await get<Page<Partition>>("partitions", ALL, signal)).results, staleTime: 30_000 });

export const useLevels = () =>
  useQuery({ queryKey: ["qos"], queryFn: async ({ signal }) => (await get<Page<Qos>>("qos", ALL, signal)).results, staleTime: 30_000 });

export const useWindows = (past: boolean) =>
  useQuery({
    queryKey: ["windows", past],
    queryFn: async ({ signal }) => (await get<Page<NodeWindow>>("windows", { ...ALL, past: String(past) }, signal)).results,
    refetchInterval: 30_000,
  });

/** What a change of nodes or of sets of them shows elsewhere is read again. */
function useClusterChange<T, R>(change: (input: T) => Promise<R>) {
  const client = useQueryClient();
  return useMutation({
    mutationFn: change,
    onSuccess: () => Promise.all(["nodes", "partitions", "windows"].map((key) => client.invalidateQueries({ queryKey: [key] }))),
  });
}

export interface PartitionWish {
  nodes: string[];
  accelerator_types: string[];
  priority: number;
  for_everybody: boolean;
  projects: string[];
  max_gpus: number | null;
  max_duration_s: number | null;
  is_default: boolean;
}

/** Without a deadline at once. */
export interface DrainWish {
  deadline_at?: string;
  reason: string;
}

export const useDrain = () => useClusterChange(({ name, wish }: { name: string; wish: DrainWish }) => send<ClusterNode>("POST", `${nodePath(name)}/drain`, wish));
export const useResume = () => useClusterChange((name: string) => send<ClusterNode>("POST", `${nodePath(name)}/resume`));

export const useCheckNode = () => useClusterChange((name: string) => send<ClusterNode>("POST", `${nodePath(name)}/check`));
export const useUseAnyway = () => useClusterChange((name: string) => send<ClusterNode>("POST", `${nodePath(name)}/use-anyway`));

/** What a drain would do to who is there now. */
export const useDrainPreview = (name: string, deadlineAt: string | null) =>
  useQuery({
    queryKey: ["drain-preview", name, deadlineAt],
    queryFn: ({ signal }) => get<DrainPreview>(`${nodePath(name)}/drain-preview`, { deadline_at: deadlineAt }, signal),
    refetchInterval: 15_000,
    placeholderData: keepPreviousData,
  });

export const useSetPartition = () =>
  useClusterChange(({ name, wish }: { name: string; wish: PartitionWish }) => send<Partition>("PUT", `partitions/${encodeURIComponent(name)}`, wish));
export const useRemovePartition = () => useClusterChange((name: string) => send<void>("DELETE", `partitions/${encodeURIComponent(name)}`));

export type WindowWish = Pick<NodeWindow, "kind" | "start_at" | "end_at" | "reason" | "nodes" | "accelerator_types" | "all_nodes" | "projects" | "users">;
export const useAddWindow = () => useClusterChange((wish: WindowWish) => send<NodeWindow>("POST", "windows", wish));
export const useRemoveWindow = () => useClusterChange((id: number) => send<void>("DELETE", `windows/${id}`));
