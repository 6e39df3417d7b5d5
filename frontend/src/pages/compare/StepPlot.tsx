import "uplot/dist/uPlot.min.css";
import { useElementSize } from "@mantine/hooks";
import { useEffect, useRef } from "react";
import uPlot from "uplot";
import { jobHex } from "../../lib/colour";
import { integer, trimmed } from "../../lib/format";
import { useScheme } from "../../shell/ThemeToggle";
import { TOKENS, type Scheme } from "../../theme/tokens";
import { DASHES, type StepChart } from "./compare";

const HEIGHT = 200;

interface Props {
  chart: StepChart;
  numbers: number[];
  zero: boolean;
  label: string;
  onRead: (index: number | null) => void;
}

function options(width: number, { numbers, zero }: Props, scheme: Scheme, read: (plot: uPlot) => void): uPlot.Options {
  const token = (name: string) => TOKENS[scheme][name] ?? "#888888";
  const axis = { stroke: token("axis"), font: `11px ${getComputedStyle(document.body).fontFamily}`, ticks: { show: false } };
  return {
    width, height: HEIGHT, padding: [8, 26, 0, 0], legend: { show: false },
    cursor: { sync: { key: "compare" }, drag: { x: false, y: false }, y: false, points: { size: 7 } },
    scales: {
      x: { time: false },
      y: {
        range: (_, low, high) => {
          if (low === null || high === null) return [0, 1];
          const pad = (high - low) * 0.08 || Math.abs(high) * 0.1 || 1;
          return zero ? [0, high + pad] : [low - pad, high + pad];
        },
      },
    },
    axes: [
      { ...axis, grid: { show: false }, space: 70, size: 26, values: (_, ticks) => ticks.map(integer) },
      { ...axis, grid: { stroke: token("grid"), width: 1 }, space: 38, size: 48, values: (_, ticks) => ticks.map(trimmed) },
    ],
    series: [{}, ...numbers.map((number, i) => ({ label: String(number), stroke: jobHex(number, scheme), width: 2, dash: DASHES[i % DASHES.length] ?? [], spanGaps: true, points: { show: false } }))],
    hooks: { setCursor: [read] },
  };
}

/** A line per job over its steps. */
export default function StepPlot(props: Props) {
  const { ref, width } = useElementSize();
  const scheme = useScheme();
  const host = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const latest = useRef(props);
  latest.current = props;
  const { chart, zero } = props;
  const lines = props.numbers.join(",");
  useEffect(() => {
    if (!host.current || width === 0) return;
    const { steps, values } = latest.current.chart;
    const made = new uPlot(options(width, latest.current, scheme, (one) => latest.current.onRead(one.cursor.idx ?? null)), [steps, ...values], host.current);
    plot.current = made;
    return () => {
      plot.current = null;
      made.destroy();
    };
  }, [width, scheme, lines, zero]);
  useEffect(() => {
    plot.current?.setData([chart.steps, ...chart.values]);
  }, [chart]);
  return (
    <div ref={ref} role="img" aria-label={`${props.label} over steps`} style={{ minHeight: HEIGHT, overflow: "hidden" }}>
      <div ref={host} />
    </div>
  );
}
