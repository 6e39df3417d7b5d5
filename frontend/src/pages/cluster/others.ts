import type { ClusterNode } from "../../api/types";
import { count, moment } from "../../lib/format";

type Shared = Pick<ClusterNode, "accelerators" | "taken">;

/** GPUs that jobs of the engine have which are not the portal's, or leave too little beside. */
export const othersGpus = (node: Pick<ClusterNode, "accelerators">): number => node.accelerators.filter((gpu) => gpu.state === "others").length;

/** Until 14:20; empty where no time limit is known. */
function until(ends: (string | null)[], now: Date): string {
  const known = new Set(ends);
  const first = [...known].filter((end): end is string => end !== null).sort((a, b) => Date.parse(a) - Date.parse(b))[0];
  if (first === undefined) return "";
  return `${known.size > 1 ? ", the first until" : " until"} ${moment(new Date(first), now)}`;
}

/** 2 by others in Slurm until 14:20; null where nobody else is there. */
export function othersWords(node: Shared, engine: string | undefined, now: Date): string | null {
  const gpus = othersGpus(node);
  const cpus = node.taken.reduce((sum, one) => sum + one.cpus, 0);
  if (gpus === 0 && cpus === 0) return null;
  const what = gpus > 0 ? `${gpus}` : count(cpus, "processor");
  return `${what} by others in ${engine ?? "the engine"}${until(node.taken.map((one) => one.until_at), now)}`;
}
