import type { AcceleratorState, NodeState } from "../api/types";

export type Face = "held" | "moving" | "free" | "draining" | "lost";

/** GPUs side by side that belong to one job in one condition: drawn as one block. */
export interface Block {
  from: number;
  size: number;
  job: number | null;
  face: Face;
  protected: boolean;
  utilisation: (number | null)[];
}

function faceOf(node: NodeState, gpu: AcceleratorState): Face {
  if (node.lost) return "lost";
  if (gpu.state === "assigned" || gpu.kind === "launching" || gpu.kind === "moving") return gpu.job === undefined ? "free" : "moving";
  if (gpu.job !== undefined) return "held";
  return gpu.state === "draining" || !node.schedulable ? "draining" : "free";
}

const EMPTY: AcceleratorState = { state: "free" };

/** Blocks of one node, broken at every `perRow` GPUs so that a block never spans two lines. */
export function nodeBlocks(node: NodeState, perRow = Infinity): Block[] {
  const blocks: Block[] = [];
  for (let index = 0; index < node.gpus; index += 1) {
    const gpu = node.accelerators[String(index)] ?? EMPTY;
    const face = faceOf(node, gpu);
    const job = face === "held" || face === "moving" ? (gpu.job ?? null) : null;
    const isProtected = gpu.kind === "protected";
    const last = blocks.at(-1);
    const same = last && last.job === job && last.face === face && last.protected === isProtected && index % perRow !== 0;
    if (same) {
      last.size += 1;
      last.utilisation.push(gpu.utilisation ?? null);
    } else {
      blocks.push({ from: index, size: 1, job, face, protected: isProtected, utilisation: [gpu.utilisation ?? null] });
    }
  }
  return blocks;
}

export type Density = "full" | "fold" | "heat";

export function densityFor(gpus: number): Density {
  if (gpus > 1000) return "heat";
  return gpus > 100 ? "fold" : "full";
}

export function busyOf(node: NodeState): number {
  return Object.values(node.accelerators).filter((gpu) => gpu.job !== undefined).length;
}

export function meanUtilisation(node: NodeState): number | null {
  const known = Object.values(node.accelerators).map((gpu) => gpu.utilisation ?? null).filter((value): value is number => value !== null);
  return known.length === 0 ? null : known.reduce((sum, value) => sum + value, 0) / node.gpus;
}
