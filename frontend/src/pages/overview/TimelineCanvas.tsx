import { useEffect, useMemo, useRef, type PointerEvent } from "react";
import { bandOf, lanesOf, mergeHolds, timeTicks, type Bar, type Lane } from "../../lib/charts/bars";
import { clock } from "../../lib/format";
import { jobHex } from "../../lib/colour";
import { lightJob, useLit } from "../../lib/highlight";
import { useScheme } from "../../shell/ThemeToggle";
import { TOKENS, type Scheme } from "../../theme/tokens";
import type { DrawingProps } from "./Timeline";
import { isolated } from "../../lib/isolated";

const LEFT = 84;
const FOOT = 24;

interface Scene {
  bars: Bar[];
  lanes: Lane[];
  height: number;
  width: number;
  from: number;
  now: number;
  scheme: Scheme;
  lit: number | null;
}

const right = (scene: Scene) => scene.width - 12;
const at = (scene: Scene, time: number) =>
  LEFT + ((Math.min(scene.now, Math.max(scene.from, time)) - scene.from) / (scene.now - scene.from)) * (right(scene) - LEFT);

function draw(canvas: HTMLCanvasElement, scene: Scene): void {
  const context = canvas.getContext("2d");
  if (!context) return;
  const token = (name: string) => TOKENS[scene.scheme][name] ?? "#888888";
  const ratio = window.devicePixelRatio || 1;
  canvas.width = scene.width * ratio;
  canvas.height = (scene.height + FOOT) * ratio;
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, scene.width, scene.height + FOOT);
  context.font = `11px ${getComputedStyle(canvas).fontFamily}`;
  for (const lane of scene.lanes) {
    context.fillStyle = token("cell-free");
    context.fillRect(LEFT, lane.top, right(scene) - LEFT, lane.gpus * lane.row);
    context.fillStyle = token("axis");
    if (lane.gpus * lane.row >= 9) context.fillText(isolated(lane.name.slice(0, 14)), 0, lane.top + 9);
  }
  const lanes = new Map(scene.lanes.map((lane) => [lane.name, lane]));
  for (const bar of scene.bars) {
    const lane = lanes.get(bar.node);
    if (!lane || (bar.end ?? scene.now) < scene.from) continue;
    const x0 = at(scene, bar.start);
    context.globalAlpha = (scene.lit !== null && scene.lit !== bar.job.number ? 0.2 : 1) * (bar.kind === "launching" || bar.kind === "moving" ? 0.45 : 1);
    context.fillStyle = jobHex(bar.job.number, scene.scheme);
    const band = bandOf(bar, lane);
    context.fillRect(x0, band.y, Math.max(1, at(scene, bar.end ?? scene.now) - x0), band.height - (lane.row > 1 ? 0.5 : 0));
  }
  context.globalAlpha = 1;
  context.textAlign = "center";
  for (const tick of timeTicks(scene.from, scene.now, scene.width < 500 ? 4 : 9)) {
    context.fillStyle = token("axis");
    context.fillText(clock(new Date(tick)), Math.min(at(scene, tick), scene.width - 18), scene.height + 18);
  }
  context.fillStyle = token("accent");
  context.fillRect(right(scene) - 0.8, 2, 1.6, scene.height - 2);
}

function under(scene: Scene, px: number, py: number): Bar | undefined {
  const time = scene.from + ((px - LEFT) / (right(scene) - LEFT)) * (scene.now - scene.from);
  const lane = scene.lanes.find((entry) => py >= entry.top && py < entry.top + entry.gpus * entry.row);
  if (!lane) return undefined;
  return scene.bars.find((bar) => {
    if (bar.node !== lane.name || time < bar.start || time > (bar.end ?? scene.now)) return false;
    const band = bandOf(bar, lane);
    return py >= band.y && py < band.y + band.height;
  });
}

/** The same picture on a canvas, for clusters with more GPUs than the page should hold elements. */
export function TimelineCanvas({ timeline, from, now, width }: DrawingProps) {
  const ref = useRef<HTMLCanvasElement>(null);
  const scheme = useScheme();
  const lit = useLit();
  const bars = useMemo(() => mergeHolds(timeline.holds), [timeline]);
  const { lanes, height } = useMemo(() => lanesOf(timeline), [timeline]);
  const scene: Scene = { bars, lanes, height, width, from, now, scheme, lit };
  useEffect(() => {
    if (ref.current) draw(ref.current, scene);
  });
  const onMove = (event: PointerEvent<HTMLCanvasElement>) => {
    const box = event.currentTarget.getBoundingClientRect();
    const bar = under(scene, event.clientX - box.left, event.clientY - box.top);
    lightJob(bar?.job.number ?? null);
    event.currentTarget.title = bar ? `#${bar.job.number} ${isolated(bar.job.name ?? bar.job.project)}: ${bar.kind} on ${isolated(bar.node)}` : "";
  };
  return (
    <canvas
      ref={ref} style={{ width, height: height + FOOT, display: "block" }} role="img" aria-label={`Which job had which GPU since ${clock(new Date(from))}`}
      onPointerMove={onMove} onPointerLeave={() => lightJob(null)}
    />
  );
}
