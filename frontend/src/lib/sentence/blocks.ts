import type { AcceleratorState, NodeState } from "../../api/types";
import { percent } from "../format";
import type { ClusterState } from "../live/blanks";

export type Face = "held" | "moving" | "shared" | "free" | "draining" | "lost" | "others";

/** What one job has of a GPU. */
type Holder = Omit<NonNullable<AcceleratorState["parts"]>[number], "kind"> & Pick<AcceleratorState, "kind">;

/** GPUs side by side that belong to one job in one condition, or one GPU held in parts: drawn as one block. */
export interface Block {
  from: number;
  size: number;
  job: number | null;
  face: Face;
  protected: boolean;
  utilisation: (number | null)[];
  /** Of one held in parts: who has how much, and what nobody has. */
  parts: Holder[];
  rest: { percent: number; face: "free" | "draining" };
}

/** The jobs on a GPU, each with its share. */
export function holdersOf(gpu: AcceleratorState): Holder[] {
  if (gpu.parts && gpu.parts.length > 0) return gpu.parts;
  return gpu.job === undefined ? [] : [{ job: gpu.job, kind: gpu.kind, share_percent: 100 }];
}

/** Not there yet, or about to leave. */
export const isMoving = (kind: AcceleratorState["kind"]) => kind === "launching" || kind === "moving";

const emptyFace = (node: NodeState, gpu: AcceleratorState) => (gpu.state === "draining" || !node.schedulable ? "draining" : "free");

function faceOf(node: NodeState, gpu: AcceleratorState): Face {
  if (node.lost) return "lost";
  if (gpu.parts && gpu.parts.length > 0) return "shared";
  if (gpu.state === "others") return "others";
  if (gpu.state === "assigned" || isMoving(gpu.kind)) return gpu.job === undefined ? "free" : "moving";
  return gpu.job === undefined ? emptyFace(node, gpu) : "held";
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
    const same = last && face !== "shared" && last.job === job && last.face === face && last.protected === isProtected && index % perRow !== 0;
    if (same) {
      last.size += 1;
      last.utilisation.push(gpu.utilisation ?? null);
    } else {
      const rest = { percent: gpu.free_percent ?? 0, face: emptyFace(node, gpu) } as const;
      blocks.push({ from: index, size: 1, job, face, protected: isProtected, utilisation: [gpu.utilisation ?? null], parts: face === "shared" ? holdersOf(gpu) : [], rest });
    }
  }
  return blocks;
}

/** #12 50 %, #15 25 %, 25 % free; #12 alone where it has all. */
export function partWords({ parts, rest }: Pick<Block, "parts" | "rest">): string {
  const held = parts.map((part) => (part.share_percent < 100 ? `#${part.job} ${percent(part.share_percent / 100)}` : `#${part.job}`));
  return [...held, rest.percent > 0 ? `${percent(rest.percent / 100)} ${rest.face}` : ""].filter(Boolean).join(", ");
}

export type Density = "full" | "fold" | "heat";

export function densityFor(gpus: number): Density {
  if (gpus > 1000) return "heat";
  return gpus > 100 ? "fold" : "full";
}

/** GPUs of which somebody has all or a part. */
export function busyOf(node: NodeState): number {
  return Object.values(node.accelerators).filter((gpu) => holdersOf(gpu).length > 0).length;
}

/** Nobody holds them, and nothing can start on them. */
export function gpusOutOfUse({ nodes }: Pick<ClusterState, "nodes">): number {
  return Object.values(nodes).reduce((sum, node) => sum + (node.schedulable && !node.lost ? 0 : node.gpus - busyOf(node)), 0);
}

export function meanUtilisation(node: NodeState): number | null {
  const known = Object.values(node.accelerators).map((gpu) => gpu.utilisation ?? null).filter((value): value is number => value !== null);
  return known.length === 0 ? null : known.reduce((sum, value) => sum + value, 0) / node.gpus;
}
