import type { ClusterState } from "./blanks";

export interface Neighbour {
  number: number;
  project: string;
  gpus: number;
  nodes: string[];
}

type Nodes = Pick<ClusterState, "nodes" | "jobs">;

/** Who else holds GPUs of the same nodes, the most GPUs first: they share processors, memory bandwidth and network. */
export function neighboursOf(number: number, gpus: readonly { node: string }[], cluster: Nodes | null): Neighbour[] {
  const found = new Map<number, Neighbour>();
  for (const node of new Set(gpus.map((gpu) => gpu.node))) {
    for (const cell of Object.values(cluster?.nodes[node]?.accelerators ?? {})) {
      if (cell.state !== "held" || cell.job === undefined || cell.job === number) continue;
      const known = found.get(cell.job) ?? { number: cell.job, project: cluster?.jobs[String(cell.job)]?.project ?? "another project", gpus: 0, nodes: [] };
      found.set(cell.job, { ...known, gpus: known.gpus + 1, nodes: known.nodes.includes(node) ? known.nodes : [...known.nodes, node] });
    }
  }
  return [...found.values()].sort((a, b) => b.gpus - a.gpus || a.number - b.number);
}
