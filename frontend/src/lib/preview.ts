import type { AcceleratorType, CurvePoint, Estimate, ModelType, Partition } from "../api/types";
import type { ClusterState } from "./blanks";
import { basisOf, capital, count, inWords, trimmed, typeName, withUnit } from "./format";
import type { JobFile } from "./jobFile";
import { readPath } from "./jobFile";

/** What the preview needs of a job file, with the portal's defaults filled in. */
export interface Ask {
  model: string | null;
  steps: number | null;
  min: number;
  max: number;
  types: string[];
}

const positive = (value: unknown): number | null => (typeof value === "number" && Number.isFinite(value) && value > 0 ? value : null);

export function askOf(file: JobFile, accelerators: AcceleratorType[]): Ask {
  const wanted = readPath(file, "gpus.types");
  const all = accelerators.map((type) => type.name);
  const types = Array.isArray(wanted) && wanted.length > 0 ? wanted.map(String) : all;
  const most = Math.max(1, ...accelerators.filter((type) => types.includes(type.name)).map((type) => type.count));
  const min = positive(readPath(file, "gpus.min")) ?? 1;
  const max = positive(readPath(file, "gpus.max")) ?? most;
  return { model: typeof file.model_type === "string" ? file.model_type : null, steps: positive(file.total_steps), min, max: Math.max(min, max), types };
}

/** Steps per second of one type on 1, 2, ... GPUs, from the file's own curve or from the catalogue. */
export interface KnownCurve {
  type: string;
  steps: number[];
  source: string;
  measured: boolean;
  /** What the value of each GPU count rests on, where it is not drawn between others. */
  points: CurvePoint[];
}

/** Where the value on so many GPUs comes from, and how old it is. */
export function restsOn(curve: KnownCurve, gpus: number): string {
  const point = curve.points.find((entry) => entry.count === gpus);
  if (!point) return curve.measured ? "drawn through measurements" : `from ${curve.source}`;
  return basisOf(point.source, point.age_s, point.samples, point.relative_error);
}

export function curvesOf(file: JobFile, models: ModelType[]): KnownCurve[] {
  const own = readPath(file, "throughput");
  if (typeof own === "object" && own !== null && Object.keys(own).length > 0) {
    return Object.entries(own).filter(([, steps]) => Array.isArray(steps)).map(([type, steps]) => ({ type, steps: (steps as unknown[]).map(Number), source: "your own curve", measured: false, points: [] }));
  }
  const model = models.find((entry) => entry.name === file.model_type);
  return Object.entries(model?.curves ?? {}).map(([type, curve]) => ({
    type, steps: curve.steps_per_s, source: curve.source ?? "catalogue", measured: curve.source === "measured", points: curve.points,
  }));
}

export interface Room {
  free: number;
  bestNode: number;
  total: number;
}

/** Its name and itself, of each node that a job of the file's partition may be on; of no partition, where it gets none. */
function nodesWithin(cluster: ClusterState | null, partitions: Partition[], wanted: unknown) {
  const chosen = partitions.find((one) => (wanted == null ? one.is_default : one.name === wanted));
  return Object.entries(cluster?.nodes ?? {}).filter(([name, node]) => {
    const within = partitions.filter((one) => one.nodes.includes(name) || one.accelerator_types.includes(node.type));
    return chosen ? within.includes(chosen) : within.length === 0;
  });
}

/** Those of the types that nodes of the file's partition have, lost or drained ones too; all while nothing is known of nodes. */
export function typesWithin(types: string[], cluster: ClusterState | null, partitions: Partition[], wanted: unknown): string[] {
  if (!cluster || partitions.length === 0) return types;
  const there = new Set(nodesWithin(cluster, partitions, wanted).map(([, node]) => node.type));
  return types.filter((type) => there.has(type));
}

/** GPUs free at this moment among the types allowed, on nodes that the file's partition has; of no partition, where it gets none. */
export function roomFor(types: string[], cluster: ClusterState | null, partitions: Partition[], wanted: unknown): Room {
  const room = { free: 0, bestNode: 0, total: 0 };
  for (const [, node] of nodesWithin(cluster, partitions, wanted)) {
    if (!types.includes(node.type) || node.lost || !node.schedulable) continue;
    const free = Object.values(node.accelerators).filter((gpu) => gpu.state === "free" && gpu.job === undefined).length;
    room.total += node.gpus;
    room.free += free;
    room.bestNode = Math.max(room.bestNode, free);
  }
  return room;
}

export interface Verdict {
  title: string;
  text: string;
  tone: "good" | "warn" | "bad";
}

/** What the portal says of limits on a job file. */
export type LimitsSaid = Pick<Estimate, "refused_by" | "waits_for">;

/** What can be said before submitting, from the present state alone; no forecast of the start. */
export function verdict(ask: Ask, room: Room, queued: number, limits?: LimitsSaid): Verdict {
  const refused = limits?.refused_by ?? [];
  if (refused.length > 0) return { tone: "bad", title: refused.length === 1 ? "A limit refuses it now" : `${capital(inWords(refused.length))} limits refuse it now`, text: refused.join(" ") };
  const placed = verdictOfRoom(ask, room, queued);
  const waits = limits?.waits_for ?? [];
  if (waits.length === 0 || placed.tone === "bad") return placed;
  const title = waits.length === 1 ? "It will wait for a limit" : `It will wait for ${inWords(waits.length)} limits`;
  return { tone: "warn", title, text: `${waits.join(" ")} It can be submitted and starts when ${waits.length === 1 ? "the limit lets" : "they let"} it.` };
}

function verdictOfRoom(ask: Ask, room: Room, queued: number): Verdict {
  const kind = ask.types.length === 1 ? typeName(ask.types[0] ?? "") : "GPU";
  const kinds = ask.types.length === 1 ? kind : "GPUs of the types allowed";
  const ahead = queued === 0 ? "nothing waits ahead of it" : `${inWords(queued)} ${queued === 1 ? "job waits" : "jobs wait"} already`;
  const are = (n: number) => (n === 1 ? "is" : "are");
  if (room.total === 0) return { tone: "bad", title: "It could not start here", text: `No node in use has ${ask.types.length === 0 ? "accelerators" : ask.types.map(typeName).join(" or ")}.` };
  if (ask.min > room.total) return { tone: "bad", title: "It could never start here", text: `It asks for at least ${ask.min} GPUs; the cluster has ${room.total} of the types allowed.` };
  if (room.free >= ask.min && queued === 0) return { tone: "good", title: "GPUs are free for it now", text: `${count(room.free, kind, kinds)} ${are(room.free)} free and ${ahead}, so the next round can start it.` };
  if (room.free >= ask.min) return { tone: "good", title: "There is room now", text: `${count(room.free, kind, kinds)} ${are(room.free)} free, but ${ahead}; the policy decides who gets them.` };
  const lacks = room.free === 0 ? `No ${kind} is free` : `Only ${count(room.free, kind, kinds)} ${are(room.free)} free and it needs ${ask.min}`;
  return { tone: "warn", title: "It will wait, or others make room", text: `${lacks}, and ${ahead}. The policy may shrink running jobs for it.` };
}

/** Said under the cost: of what the amounts are, and what they are less already. */
export function costBasis({ discount, jobs }: Pick<Estimate, "discount" | "jobs">): string {
  const of = jobs > 1 ? `each of ${count(jobs, "job")}, ` : "";
  return `${of}at today's rates, ${discount ? `less ${withUnit(trimmed(Number(discount.percent)), "%")} discount of project ${discount.name}` : "without a discount"}`;
}
