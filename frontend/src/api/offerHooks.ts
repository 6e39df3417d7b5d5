import { useQueries } from "@tanstack/react-query";
import { get } from "./client";
import { usePartitions } from "./clusterHooks";
import { useAcceleratorTypes, useSession } from "./hooks";
import type { AcceleratorType, Page, Partition, Session } from "./types";

type ClusterRef = Session["clusters"][number];

/** Clusters that a job of the file may come to: the one that it names, or all among which the portal chooses. */
function useWanted(wanted: unknown): { several: boolean; clusters: ClusterRef[] } {
  const clusters = useSession().data?.clusters ?? [];
  const named = clusters.filter((one) => one.name === wanted);
  return { several: clusters.length > 1, clusters: named.length > 0 ? named : clusters };
}

/** Types of GPUs that the job could have. */
export function useOfferedTypes(wanted: unknown): AcceleratorType[] {
  const { several, clusters } = useWanted(wanted);
  const only = useAcceleratorTypes().data ?? [];
  const found = useQueries({
    queries: (several ? clusters : []).map(({ name }) => ({
      queryKey: ["accelerator-types", name],
      queryFn: ({ signal }: { signal: AbortSignal }) => get<AcceleratorType[]>("accelerator-types", { cluster: name }, signal),
      staleTime: 60_000,
    })),
    combine: (results) => results.flatMap((one) => one.data ?? []),
  });
  return several ? largest(found) : only;
}

/** Each type once, as the cluster has it that has most of it. */
export function largest(types: AcceleratorType[]): AcceleratorType[] {
  const known = new Map<string, AcceleratorType>();
  for (const one of types) if (one.count > (known.get(one.name)?.count ?? -1)) known.set(one.name, one);
  return [...known.values()].sort((a, b) => a.name.localeCompare(b.name));
}

/** Partitions are a cluster's own: there are some to choose from once that is known. */
export function useOfferedPartitions(wanted: unknown): Partition[] {
  const { several, clusters } = useWanted(wanted);
  const only = usePartitions().data ?? [];
  const one = several && clusters.length === 1 ? clusters : [];
  const found = useQueries({
    queries: one.map(({ name }) => ({
      queryKey: ["partitions", name],
      queryFn: async ({ signal }: { signal: AbortSignal }) => (await get<Page<Partition>>("partitions", { cluster: name, limit: 200 }, signal)).results,
      staleTime: 30_000,
    })),
    combine: (results) => results.flatMap((result) => result.data ?? []),
  });
  return several ? found : only;
}
