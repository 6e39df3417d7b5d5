import { useElementSize } from "@mantine/hooks";
import { useEffect, useRef } from "react";
import uPlot from "uplot";
import type { JobTimeline } from "../../api/types";
import { clock, trimmed } from "../../lib/format";
import { jobHex } from "../../lib/colour";
import { useScheme } from "../../shell/ThemeToggle";
import { TOKENS, type Scheme } from "../../theme/tokens";
import type { ChartData } from "./series";

const HEIGHT = 192;

/** Values under the shared cursor. */
export interface Readout {
  at: number;
  value: number | null;
  second: number | null;
  step: number | null;
}

interface Props {
  data: ChartData;
  number: number;
  zero: boolean;
  timeline: JobTimeline | undefined;
  onReadout: (readout: Readout | null) => void;
  label: string;
}

const columns = (data: ChartData): uPlot.AlignedData => [data.times, data.values, data.predicted];

/** Violet bands from the moment of a rescale to the next running state, with the GPU counts above the stretches. */
function drawBands(plot: uPlot, timeline: JobTimeline | undefined, scheme: Scheme): void {
  const { ctx, bbox } = plot;
  ctx.save();
  ctx.fillStyle = TOKENS[scheme]["s-rescaling"] ?? "#6c3fb4";
  ctx.globalAlpha = 0.16;
  for (const rescale of timeline?.resizes ?? []) {
    const at = Date.parse(rescale.at);
    const running = timeline?.states.find((state) => state.coarse === "running" && Date.parse(state.from_at) > at);
    const from = plot.valToPos(at / 1000, "x", true);
    const to = running ? plot.valToPos(Date.parse(running.from_at) / 1000, "x", true) : bbox.left + bbox.width;
    const left = Math.max(bbox.left, from);
    const width = Math.min(Math.max(to - from, 2), bbox.left + bbox.width - left);
    if (width > 0 && from <= bbox.left + bbox.width) ctx.fillRect(left, bbox.top, width, bbox.height);
  }
  ctx.restore();
}

function options(width: number, props: Props, scheme: Scheme, read: (plot: uPlot) => void, latest: { current: Props }): uPlot.Options {
  const token = (name: string) => TOKENS[scheme][name] ?? "#888888";
  const font = `11px ${getComputedStyle(document.body).fontFamily}`;
  const axis = { stroke: token("axis"), font, ticks: { show: false } };
  return {
    width, height: HEIGHT, padding: [8, 26, 0, 0],
    cursor: { sync: { key: `job-${props.number}` }, drag: { x: false, y: false }, y: false, points: { size: 7 } },
    scales: {
      x: { time: true },
      y: {
        range: (_, low, high) => {
          if (low === null || high === null) return [0, 1];
          const pad = (high - low) * 0.08 || Math.abs(high) * 0.1 || 1;
          return props.zero ? [0, high + pad] : [low - pad, high + pad];
        },
      },
    },
    axes: [
      { ...axis, grid: { show: false }, space: 70, size: 26, values: (_, ticks, __, ___, stepS) => ticks.map((tick) => clock(new Date(tick * 1000), stepS < 60)) },
      { ...axis, grid: { stroke: token("grid"), width: 1 }, space: 38, size: 44, values: (_, ticks) => ticks.map(trimmed) },
    ],
    series: [
      {},
      { label: props.label, stroke: jobHex(props.number, scheme), width: 2, points: { show: false } },
      { label: "predicted", stroke: token("ink-3"), width: 1.2, dash: [4, 4], points: { show: false } },
    ],
    hooks: { drawClear: [(plot) => drawBands(plot, latest.current.timeline, scheme)], setCursor: [read] },
  };
}

export function Plot(props: Props) {
  const { ref, width } = useElementSize();
  const scheme = useScheme();
  const hostRef = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const latest = useRef(props);
  latest.current = props;
  useEffect(() => {
    const host = hostRef.current;
    if (!host || width === 0) return;
    const read = (instance: uPlot) => {
      const { data, onReadout } = latest.current;
      const i = instance.cursor.idx;
      const at = i == null ? undefined : data.times[i];
      onReadout(i == null || at === undefined ? null : { at, value: data.values[i] ?? null, second: data.predicted[i] ?? null, step: data.steps[i] ?? null });
    };
    const made = new uPlot(options(width, latest.current, scheme, read, latest), columns(latest.current.data), host);
    plot.current = made;
    return () => {
      plot.current = null;
      made.destroy();
    };
  }, [width, scheme, props.number, props.zero]);
  useEffect(() => {
    plot.current?.setData(columns(props.data));
  }, [props.data]);
  return (
    <div ref={ref} role="img" aria-label={`${props.label} over time`} style={{ minHeight: HEIGHT }}>
      <div ref={hostRef} />
    </div>
  );
}
