import type { ClusterTimeline, Hold, HoldKind } from "../../api/types";
import { clock } from "../format";

/** One rectangle of the allocation timeline: neighbouring GPUs a job holds over the same time in the same way. */
export interface Bar {
  node: string;
  from: number;
  size: number;
  job: Hold["job"];
  epoch: number;
  kind: HoldKind;
  start: number;
  end: number | null;
  /** Which part of the line is its own, from 0, where jobs share the GPU. */
  slot: number;
  slots: number;
}

const keyOf = (hold: Hold) => `${hold.node}/${hold.job.number}/${hold.epoch}/${hold.kind}/${hold.from_at}/${hold.to_at ?? ""}`;

export function mergeHolds(holds: Hold[]): Bar[] {
  const groups = new Map<string, Hold[]>();
  for (const hold of holds) {
    const key = keyOf(hold);
    const group = groups.get(key);
    if (group) group.push(hold);
    else groups.set(key, [hold]);
  }
  const bars: Bar[] = [];
  for (const group of groups.values()) {
    group.sort((a, b) => a.index - b.index);
    for (const hold of group) {
      const last = bars.at(-1);
      if (last && last.node === hold.node && last.job.number === hold.job.number && last.from + last.size === hold.index && hold !== group[0]) last.size += 1;
      else bars.push(barOf(hold));
    }
  }
  return withSlots(bars);
}

const endOf = (bar: Bar) => bar.end ?? Infinity;

/** Bars of one GPU at the same time are of jobs that share it: each has a slot, the same one as long as its job stays. */
function withSlots(bars: Bar[]): Bar[] {
  const gpus = new Map<string, Bar[]>();
  for (const bar of bars) {
    if (bar.size > 1) continue;
    const key = `${bar.node}/${bar.from}`;
    const known = gpus.get(key);
    if (known) known.push(bar);
    else gpus.set(key, [bar]);
  }
  for (const group of gpus.values()) {
    let together: Bar[] = [];
    for (const bar of group.sort((a, b) => a.start - b.start || a.job.number - b.job.number)) {
      if (together.every((other) => endOf(other) < bar.start || (endOf(other) === bar.start && other.job.number !== bar.job.number))) together = [];
      bar.slot = slotBeside(bar, together);
      together.push(bar);
      const slots = Math.max(...together.map((other) => other.slot + 1));
      for (const other of together) other.slots = slots;
    }
  }
  return bars;
}

/** That of the job before, or the first that nobody has then. */
function slotBeside(bar: Bar, together: Bar[]): number {
  const taken = new Set(together.filter((other) => endOf(other) > bar.start).map((other) => other.slot));
  const before = together.findLast((other) => other.job.number === bar.job.number)?.slot;
  if (before !== undefined && !taken.has(before)) return before;
  let slot = 0;
  while (taken.has(slot)) slot += 1;
  return slot;
}

/** Where a bar stands in the drawing. */
export function bandOf(bar: Bar, lane: Lane): { y: number; height: number } {
  const height = (bar.size * lane.row) / bar.slots;
  return { y: lane.top + bar.from * lane.row + bar.slot * height, height };
}

function barOf(hold: Hold): Bar {
  return {
    node: hold.node, from: hold.index, size: 1, job: hold.job, epoch: hold.epoch, kind: hold.kind,
    start: Date.parse(hold.from_at), end: hold.to_at ? Date.parse(hold.to_at) : null, slot: 0, slots: 1,
  };
}

/** Where a name is written: once per stay of a job on the same GPUs, after the launch. */
export interface Label {
  bar: Bar;
  start: number;
  end: number | null;
}

export function labelsOf(bars: Bar[]): Label[] {
  const stays = new Map<string, Label>();
  for (const bar of [...bars].sort((a, b) => a.start - b.start)) {
    const key = `${bar.node}/${bar.from}/${bar.size}/${bar.job.number}/${bar.epoch}`;
    const stay = stays.get(key);
    if (!stay) stays.set(key, { bar, start: bar.start, end: bar.end });
    else {
      if (stay.bar.kind === "launching") {
        stay.bar = bar;
        stay.start = bar.start;
      }
      stay.end = bar.end;
    }
  }
  return [...stays.values()];
}

export interface Lane {
  name: string;
  type: string;
  emulated: boolean;
  gpus: number;
  top: number;
  row: number;
}

const NODE_GAP = 10;

/** Vertical layout: `row` pixels a GPU, folded thinner the more there are. */
export function lanesOf(timeline: ClusterTimeline): { lanes: Lane[]; height: number } {
  const gpus = timeline.nodes.reduce((sum, node) => sum + node.gpus, 0);
  const row = gpus <= 8 ? 32 : gpus <= 40 ? 13 : gpus <= 100 ? 9 : gpus <= 1000 ? 3 : 1;
  const gap = gpus > 100 ? 3 : NODE_GAP;
  let top = 4;
  const lanes = timeline.nodes.map((node) => {
    const lane = { name: node.name, type: node.type, emulated: node.emulated, gpus: node.gpus, top, row };
    top += Math.max(node.gpus * row, gpus > 1000 ? 2 : 10) + gap;
    return lane;
  });
  return { lanes, height: Math.max(top - gap, 40) };
}

const STEPS_S = [5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400];

/** Round clock times, at most `most` of them. */
export function timeTicks(from: number, to: number, most: number): number[] {
  const step = (STEPS_S.find((s) => (to - from) / 1000 / s <= most) ?? 86400) * 1000;
  const offset = new Date(from).getTimezoneOffset() * 60_000;
  const ticks: number[] = [];
  for (let at = Math.ceil((from - offset) / step) * step + offset; at <= to; at += step) ticks.push(at);
  return ticks;
}

/** Minutes are enough on an axis, unless it is a short one. */
export function tickLabel(at: number, spanMs: number): string {
  return clock(new Date(at), spanMs < 240_000);
}

const LETTER_PX = 6;

/** Where a label stands: below its tick, and at the edge beside it where it would be cut. */
export function anchored(at: number, left: number, right: number, label: string): { x: number; textAnchor: "start" | "middle" | "end" } {
  const half = (label.length * LETTER_PX) / 2;
  if (at + half > right) return { x: right, textAnchor: "end" };
  if (at - half < left) return { x: left, textAnchor: "start" };
  return { x: at, textAnchor: "middle" };
}

/** Even marks for a count axis, at most five. */
export function countMarks(most: number): number[] {
  const step = [1, 2, 3, 4, 5, 8, 10, 16, 20, 25, 32, 50, 64, 100, 128, 250, 256, 500, 512, 1000].find((size) => most / size <= 4) ?? Math.ceil(most / 4);
  return Array.from({ length: Math.floor(most / step) + 1 }, (_, i) => i * step);
}
