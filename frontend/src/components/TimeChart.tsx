import "uplot/dist/uPlot.min.css";
import { useElementSize } from "@mantine/hooks";
import { useEffect, useRef } from "react";
import uPlot from "uplot";
import { clock, trimmed } from "../lib/format";
import { columnTicks, dayTick, stack } from "../lib/charts/stack";
import { canvasTone } from "../lib/charts/tone";
import { useScheme } from "../shell/ThemeToggle";
import { TOKENS, type Scheme } from "../theme/tokens";

export interface Line {
  label: string;
  values: (number | null)[];
  kind: "bar" | "area" | "line";
  /** Which of the fills, of a line a grey one; it may have a token's colour. */
  tone: number;
  token?: string;
  dash?: boolean;
  /** A few values of a line have a dot each, unless told otherwise. */
  dots?: boolean;
}

interface Props {
  /** Names of columns, or times in seconds. */
  x: string[] | number[];
  lines: Line[];
  label: string;
  height?: number;
  /** The index under the pointer. */
  onRead?: ((index: number | null) => void) | undefined;
}

const DAY_S = 86_400;
/** A time below the right end is not cut. */
const LABEL_HALF_PX = 26;
/** So few values have a dot each: one alone is no line. */
const FEW = 31;

/** Bars and areas stand on each other; lines do not. The highest is drawn first, so that each covers what it stands on. */
function drawn(lines: Line[]): { line: Line; values: (number | null)[] }[] {
  const heaped = stack(lines.map((line) => (line.kind === "line" ? [] : line.values)));
  const piles = lines.map((line, i) => ({ line, values: heaped[i] ?? [] })).filter(({ line }) => line.kind !== "line");
  return [...piles.reverse(), ...lines.filter((line) => line.kind === "line").map((line) => ({ line, values: line.values }))];
}

function seriesOf(line: Line, scheme: Scheme): uPlot.Series {
  const colour = line.token ? (TOKENS[scheme][line.token] ?? "#888888") : canvasTone(line.tone, scheme);
  const paint = () => colour;
  const base = { label: line.label, points: { show: false } };
  if (line.kind === "bar") return { ...base, fill: paint, stroke: paint, width: 0, paths: uPlot.paths.bars!({ size: [0.72, 36] }) };
  if (line.kind === "area") return { ...base, fill: paint, stroke: paint, width: 1 };
  return { ...base, points: { show: line.dots !== false && line.values.filter((value) => value !== null).length <= FEW, size: 5, fill: paint, stroke: paint }, stroke: paint, width: 2, ...(line.dash ? { dash: [4, 4] } : {}) };
}

function options(width: number, props: Props, scheme: Scheme, read: (plot: uPlot) => void): uPlot.Options {
  const token = (name: string) => TOKENS[scheme][name] ?? "#888888";
  const axis = { stroke: token("axis"), font: `11px ${getComputedStyle(document.body).fontFamily}`, ticks: { show: false } };
  const named = typeof props.x[0] === "string";
  const names = props.x as string[];
  const span = (ticks: number[]) => (ticks.at(-1) ?? 0) - (ticks[0] ?? 0);
  return {
    width, height: props.height ?? 200, padding: [8, named ? 10 : LABEL_HALF_PX, 0, 0], legend: { show: false },
    cursor: { drag: { x: false, y: false }, y: false, points: { show: false } },
    scales: {
      x: named ? { time: false, range: [-0.6, names.length - 0.4] } : { time: true },
      y: { range: (_, __, high) => [0, high > 0 ? high * 1.06 : 1] },
    },
    axes: [
      named
        ? { ...axis, grid: { show: false }, size: 26, splits: (plot) => columnTicks(names.length, plot.width / 70), values: (_, ticks) => ticks.map((at) => names[at] ?? "") }
        : { ...axis, grid: { show: false }, size: 26, space: 76, values: (_, ticks, __, ___, stepS) => ticks.map((at) => (span(ticks) >= 2 * DAY_S ? dayTick(at) : clock(new Date(at * 1000), stepS < 60))) },
      { ...axis, grid: { stroke: token("grid"), width: 1 }, space: 38, size: 48, values: (_, ticks) => ticks.map(trimmed) },
    ],
    series: [{}, ...drawn(props.lines).map(({ line }) => seriesOf(line, scheme))],
    hooks: { setCursor: [read] },
  };
}

/** Columns or lines over time, in the greys that data other than jobs has. */
export default function TimeChart(props: Props) {
  const { ref, width } = useElementSize();
  const scheme = useScheme();
  const host = useRef<HTMLDivElement>(null);
  const read = useRef(props.onRead);
  read.current = props.onRead;
  useEffect(() => {
    if (!host.current || width === 0) return;
    const named = typeof props.x[0] === "string";
    const xs = named ? props.x.map((_, i) => i) : (props.x as number[]);
    const data = [xs, ...drawn(props.lines).map(({ values }) => values)] as uPlot.AlignedData;
    const plot = new uPlot(options(width, props, scheme, (one) => read.current?.(one.cursor.idx ?? null)), data, host.current);
    return () => plot.destroy();
  }, [width, scheme, props.x, props.lines, props.height]);
  return (
    <div ref={ref} role="img" aria-label={props.label} style={{ minHeight: props.height ?? 200, overflow: "hidden" }}>
      <div ref={host} />
    </div>
  );
}
