import type { AcceleratorType, CurvePoint, Estimate, ExpectedStart, JobPreview, ModelType, Partition } from "../../api/types";
import { basisOf, capital, count, integer, inWords, trimmed, withUnit } from "../format";
import { isolated } from "../isolated";
import { startWords } from "../job/expectedStart";
import type { ClusterState } from "../live/blanks";
import type { JobFile } from "./jobFile";
import { gpusOf, partAsked, readPath } from "./jobFile";

/** What the preview needs of a job file, with the portal's defaults filled in. */
export interface Ask {
  model: string | null;
  steps: number | null;
  min: number;
  max: number;
  types: string[];
  /** Of one GPU; 100 for whole ones. */
  sharePercent: number;
}

const positive = (value: unknown): number | null => (typeof value === "number" && Number.isFinite(value) && value > 0 ? value : null);

export function askOf(file: JobFile, accelerators: AcceleratorType[]): Ask {
  const gpus = gpusOf(file);
  const wanted = gpus.types;
  const all = accelerators.map((type) => type.name);
  const types = Array.isArray(wanted) && wanted.length > 0 ? wanted.map(String) : all;
  const most = Math.max(1, ...accelerators.filter((type) => types.includes(type.name)).map((type) => type.count));
  const part = partAsked(gpus);
  const min = part === null ? (positive(gpus.min) ?? 1) : 1;
  const max = part === null ? (positive(gpus.max) ?? most) : 1;
  return {
    model: typeof file.model_type === "string" ? file.model_type : null, steps: positive(file.total_steps), min, max: Math.max(min, max), types, sharePercent: positive(part) ?? 100,
  };
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

/** The live cluster where it is the one that the file names, or names none. */
export const isOf = (cluster: ClusterState | null, wanted: unknown) => (wanted == null || cluster?.cluster.name === wanted ? cluster : null);

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

export interface Verdict {
  title: string;
  tone: "good" | "warn" | "bad";
}

/** The scheduler's answer as a heading; when it starts, once that is known. */
export function verdictOf(preview: JobPreview, start: ExpectedStart | null, now: Date): Verdict {
  const { verdict, jobs, starting, position, reason, estimate } = preview;
  if (reason.code === "refused") {
    const limits = estimate.refused_by.length;
    return { tone: "bad", title: limits === 1 ? "A limit refuses it now" : `${capital(inWords(limits))} limits refuse it now` };
  }
  if (verdict === "never") return { tone: "bad", title: "It could never start here" };
  if (verdict === "now") return { tone: "good", title: jobs > 1 ? `${starting} of ${integer(jobs)} start in the next round` : "Starts in the next round" };
  const words = startWords(start, now);
  if (words) return { tone: "warn", title: `Starts ${words.range}` };
  return { tone: "warn", title: position === null ? "It will wait" : `It will wait, as number ${integer(position)} of the queue` };
}

/** Said under the cost: of what the amounts are, and what they are less already. */
export function costBasis({ discount, jobs }: Pick<Estimate, "discount" | "jobs">): string {
  const of = jobs > 1 ? `each of ${count(jobs, "job")}, ` : "";
  return `${of}at today's prices, ${discount ? `less ${withUnit(trimmed(Number(discount.percent)), "%")} discount of project ${isolated(discount.name)}` : "without a discount"}`;
}
