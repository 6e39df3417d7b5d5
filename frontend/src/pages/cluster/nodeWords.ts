import type { NodeDetail, NodeUse } from "../../api/types";
import { capital, clock, count, moment, percent, relative, trimmed } from "../../lib/format";
import { othersGpus } from "./others";

export const busyGpus = (node: Pick<NodeDetail, "accelerators">): number => node.accelerators.filter((gpu) => gpu.job !== null).length;

const total = (counts: Record<string, number>) => Object.values(counts).reduce((sum, one) => sum + one, 0);

/** runner_lost in words: runner lost. */
export const reasonWords = (reason: string): string => reason.replaceAll("_", " ");

/** The most frequent first. */
export const byFrequency = (counts: Record<string, number>): [string, number][] => Object.entries(counts).sort(([a, n], [b, m]) => m - n || a.localeCompare(b));

/** Its newest faults are listed, and all of them counted. */
export function faultsMeta(node: Pick<NodeDetail, "faults" | "faults_by_reason">): string {
  const all = total(node.faults_by_reason);
  return all > node.faults.length ? `last 7 days, the newest ${node.faults.length} of ${all}` : "last 7 days";
}

const jobsThere = (node: NodeDetail): string => (node.jobs.length === 0 ? "no job is there" : `${count(node.jobs.length, "job")} ${node.jobs.length === 1 ? "is" : "are"} there`);

/** What its engine says where it cannot tell whether the node is up. */
export function unclearWords(node: Pick<NodeDetail, "unclear" | "unclear_since_at">, now: Date): string {
  const since = node.unclear_since_at ? ` since ${moment(new Date(node.unclear_since_at), now)}` : "";
  return `its engine says ${node.unclear}${since}; its jobs keep running, and no job starts there`;
}

/** Power saving has switched it off, or is powering it up; empty: it is up. */
export function powerWords({ power, up_in_s }: Pick<NodeDetail, "power" | "up_in_s">): string {
  const seconds = `about ${Math.round(up_in_s ?? 0)} s`;
  if (power === "powering_up") return `its engine powers it up for a job, and it is up in ${seconds}`;
  return power ? `its engine powers it up for the first job that is sent there, which takes ${seconds}` : "";
}

function standing(node: NodeDetail, now: Date): { head: string; rest: string } {
  const busy = busyGpus(node);
  if (node.lost) return { head: `${node.name} is lost`, rest: `${node.last_seen_at ? `, last seen ${relative(new Date(node.last_seen_at), now)}` : ""}; ${jobsThere(node)}.` };
  if (node.drain) {
    const until = node.drain.state === "draining" && node.drain.deadline_at ? ` until ${moment(new Date(node.drain.deadline_at), now)}` : "";
    return { head: `${node.name} is ${node.drain.state}${until}`, rest: `: nothing new starts there; ${jobsThere(node)}.` };
  }
  if (node.check.state) return { head: `${node.name} ${node.check.state === "failed" ? "failed its check" : "is being checked"}`, rest: `: nothing new starts there; ${jobsThere(node)}.` };
  if (node.unclear) return { head: `${node.name} is unclear`, rest: `: ${unclearWords(node, now)}; ${jobsThere(node)}.` };
  if (node.power) return { head: `${node.name} is ${reasonWords(node.power)}`, rest: `: ${powerWords(node)}; ${jobsThere(node)}.` };
  if (node.gpus === 0) return { head: `${node.name} has no GPU`, rest: " that it reports." };
  const others = othersGpus(node);
  if (busy === 0 && others > 0) return { head: `No job here uses ${node.name}`, rest: `: others in its engine have ${others} of ${count(node.gpus, "GPU")}.` };
  if (busy === 0) return { head: `No job uses ${node.name}`, rest: `: ${node.gpus === 1 ? "its GPU is" : `all ${node.gpus} GPUs are`} free.` };
  return { head: `${busy} of ${count(node.gpus - others, "GPU")} of ${node.name} ${busy === 1 ? "is" : "are"} in use`, rest: ` by ${count(node.jobs.length, "job")}.` };
}

/** What it does now, and how it has been: the head is said in bold. */
export function nodeSentence(node: NodeDetail, now: Date): { head: string; rest: string } {
  const { head, rest } = standing(node, now);
  const held = node.use.allocated_part === null ? "" : ` In the last 24 h ${percent(node.use.allocated_part)} of it was allocated.`;
  const failed = total(node.faults_by_reason);
  return { head, rest: `${rest}${held} ${failed === 0 ? "No run" : capital(count(failed, "run"))} failed on it in the last 7 days.` };
}

/** 14:10–14:40: 4.5 of 6 GPUs, 75 %. */
export function heldWords(use: NodeUse, gpus: number, index: number): string {
  const point = use.allocated[index];
  if (!point) return "";
  const [at, part] = point;
  const span = `${clock(new Date(at * 1000))}–${clock(new Date((at + use.bucket_s) * 1000))}`;
  return part === null ? `${span}: it was not there yet` : `${span}: ${trimmed(part * gpus)} of ${count(gpus, "GPU")}, ${percent(part)}`;
}
