import { useMemo } from "react";
import type { ClusterTimeline } from "../../api/types";
import { bandOf, labelsOf, lanesOf, mergeHolds, timeTicks, type Bar, type Lane } from "../../lib/charts/bars";
import { clock, duration, typeName } from "../../lib/format";
import { jobHex } from "../../lib/colour";
import { jobMark, jobPaint } from "../../lib/highlight";
import { useScheme } from "../../shell/ThemeToggle";
import { inkOn, ON_LIGHT } from "../../theme/tokens";
import { Hatches } from "./Hatches";
import { RescaleMarks } from "./RescaleMarks";
import { isolated } from "../../lib/isolated";

const FOOT = 24;
/** Of a node, left of its lines; the whole is one hover away. */
const MOST_OF_A_NAME = 9;

export interface DrawingProps {
  timeline: ClusterTimeline;
  from: number;
  now: number;
  width: number;
}

export function Timeline({ timeline, from, now, width }: DrawingProps) {
  const bars = useMemo(() => mergeHolds(timeline.holds), [timeline]);
  const { lanes, height } = useMemo(() => lanesOf(timeline), [timeline]);
  const left = width < 500 ? 56 : 64;
  const right = width - 12;
  const x = (at: number) => left + ((Math.min(now, Math.max(from, at)) - from) / (now - from)) * (right - left);
  const lane = new Map(lanes.map((entry) => [entry.name, entry]));
  const seen = bars.filter((bar) => (bar.end ?? now) > from && bar.start < now && lane.has(bar.node));
  return (
    <svg width={width} height={height + FOOT} role="img" aria-label={`Which job had which GPU since ${clock(new Date(from))}`}>
      <Hatches />
      {lanes.map((entry) => <LaneHead key={entry.name} lane={entry} left={left} right={right} />)}
      {timeTicks(from, now, width < 500 ? 4 : 9).map((at) => (
        <g key={at}>
          <path d={`M${x(at)} 4V${height}`} stroke="var(--grid)" />
          <text x={Math.min(x(at), width - 18)} y={height + 18} textAnchor="middle">{clock(new Date(at))}</text>
        </g>
      ))}
      {seen.map((bar, i) => <BarShape key={i} bar={bar} lane={lane.get(bar.node)} x={x} now={now} ended={!stillHeld(bar, bars)} />)}
      {labelsOf(seen).map((label, i) => <BarLabel key={i} bar={label.bar} lane={lane.get(label.bar.node)} x0={x(label.start)} x1={x(label.end ?? now)} faded={!stillHeld(label.bar, bars)} />)}
      <RescaleMarks rescales={timeline.resizes} bars={seen} lanes={lane} x={x} from={from} now={now} />
      <path d={`M${right} 2V${height}`} stroke="var(--accent)" strokeWidth="1.6" />
      <circle cx={right} cy={3} r={3} fill="var(--accent)" />
    </svg>
  );
}

const held = new WeakMap<Bar[], Set<number>>();

function stillHeld(bar: Bar, all: Bar[]): boolean {
  let open = held.get(all);
  if (!open) held.set(all, (open = new Set(all.filter((other) => other.end === null).map((other) => other.job.number))));
  return open.has(bar.job.number);
}

function LaneHead({ lane, left, right }: { lane: Lane; left: number; right: number }) {
  const height = lane.gpus * lane.row;
  return (
    <g>
      <text x={0} y={lane.top + 10} style={{ fill: "var(--ink)", fontWeight: 600 }}>{lane.name.length > MOST_OF_A_NAME ? `${lane.name.slice(0, MOST_OF_A_NAME - 1)}…` : lane.name}<title>{lane.name}</title></text>
      {height >= 22 && <text x={0} y={lane.top + 24}>{typeName(lane.type)}</text>}
      {lane.emulated && height >= 36 && <text x={0} y={lane.top + 38}>emulated</text>}
      <rect x={left} y={lane.top} width={right - left} height={height} fill="var(--cell-free)" />
      {lane.row >= 9 && Array.from({ length: lane.gpus - 1 }, (_, i) => (
        <path key={i} d={`M${left} ${lane.top + (i + 1) * lane.row}H${right}`} stroke="var(--surface)" />
      ))}
    </g>
  );
}

interface ShapeProps {
  bar: Bar;
  lane: Lane | undefined;
  x: (at: number) => number;
  now: number;
  ended: boolean;
}

function BarShape({ bar, lane, x, now, ended }: ShapeProps) {
  const scheme = useScheme();
  if (!lane) return null;
  const x0 = x(bar.start);
  const width = Math.max(1, x(bar.end ?? now) - x0);
  const band = bandOf(bar, lane);
  const shape = { x: x0, y: band.y + 0.5, width, height: Math.max(0.5, band.height - 1) };
  const tone = inkOn(jobHex(bar.job.number, scheme)) === ON_LIGHT ? "lt" : "dk";
  const seconds = ((bar.end ?? now) - bar.start) / 1000;
  return (
    <g className="jx" style={jobPaint(bar.job.number)} {...jobMark(bar.job.number)}>
      <rect {...shape} fill="var(--job)" fillOpacity={ended ? 0.42 : 1}>
        <title>{`#${bar.job.number} ${isolated(bar.job.name ?? bar.job.project)}: ${bar.kind} on ${isolated(bar.node)}, ${duration(seconds)} from ${clock(new Date(bar.start), true)}`}</title>
      </rect>
      {(bar.kind === "launching" || bar.kind === "moving") && <rect {...shape} fill="url(#tl-moving)" pointerEvents="none" />}
      {bar.kind === "protected" && <rect {...shape} fill={`url(#tl-protected-${tone})`} pointerEvents="none" />}
      {lane.emulated && bar.kind === "running" && <rect {...shape} fill={`url(#tl-dots-${tone})`} pointerEvents="none" />}
    </g>
  );
}

function BarLabel({ bar, lane, x0, x1, faded }: { bar: Bar; lane: Lane | undefined; x0: number; x1: number; faded: boolean }) {
  const room = x1 - x0 - 8;
  if (!lane || room < 26) return null;
  const band = bandOf(bar, lane);
  if (band.height < 11) return null;
  const name = bar.job.name ?? bar.job.project;
  const fits = `${bar.job.number} ${name}`.length * 6.1 <= room;
  const text = fits ? `${bar.job.number} ${isolated(name)}` : String(bar.job.number);
  const colour = faded ? "var(--ink)" : "var(--job-ink)";
  const halo = faded ? "none" : "var(--job)";
  const y = band.y + Math.min(band.height / 2 + 4, 18);
  return (
    <text className="jx" data-job={bar.job.number} x={x0 + 5} y={y} pointerEvents="none" style={{ ...jobPaint(bar.job.number), fill: colour, fontWeight: 500, paintOrder: "stroke", stroke: halo, strokeWidth: 4, strokeLinejoin: "round" }}>
      {text}
    </text>
  );
}
