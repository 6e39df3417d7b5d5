import { holdersOf } from "../../lib/sentence/blocks";
import type { ClusterState } from "../../lib/live/blanks";

export interface Neighbour {
  number: number;
  project: string;
  gpus: number;
  /** Of its GPU. */
  share_percent: number;
  nodes: string[];
}

type Nodes = Pick<ClusterState, "nodes" | "jobs">;

/** Who else holds GPUs of the same nodes, or parts of them, the most GPUs first: they share processors, memory bandwidth and network. */
export function neighboursOf(number: number, gpus: readonly { node: string }[], cluster: Nodes | null): Neighbour[] {
  const found = new Map<number, Neighbour>();
  for (const node of new Set(gpus.map((gpu) => gpu.node))) {
    const held = Object.values(cluster?.nodes[node]?.accelerators ?? {}).filter((cell) => cell.state === "held");
    for (const { job, share_percent } of held.flatMap(holdersOf)) {
      if (job === number) continue;
      const known = found.get(job) ?? { number: job, project: cluster?.jobs[String(job)]?.project ?? "another project", gpus: 0, share_percent, nodes: [] };
      found.set(job, { ...known, gpus: known.gpus + 1, nodes: known.nodes.includes(node) ? known.nodes : [...known.nodes, node] });
    }
  }
  return [...found.values()].sort((a, b) => b.gpus * b.share_percent - a.gpus * a.share_percent || a.number - b.number);
}
