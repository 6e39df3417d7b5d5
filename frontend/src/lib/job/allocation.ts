import type { Job } from "../../api/types";
import { indexRanges } from "../format";

/** Node names with the GPU indices one hover away. */
export function whereOf(job: Job): { short: string; long: string } {
  const byNode = new Map<string, number[]>();
  for (const gpu of job.allocation?.gpus ?? []) byNode.set(gpu.node, [...(byNode.get(gpu.node) ?? []), gpu.index]);
  const names = [...byNode.keys()];
  return {
    short: names.length > 2 ? `${names.length} nodes` : names.join(", "),
    long: [...byNode].map(([node, indices]) => `${node}, GPU${indices.length > 1 ? "s" : ""} ${indexRanges(indices)}`).join("; "),
  };
}
