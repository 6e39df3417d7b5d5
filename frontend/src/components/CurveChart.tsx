import { useElementSize } from "@mantine/hooks";
import { useState } from "react";
import { anchored } from "../lib/charts/bars";
import { number, partOf, percent, THIN, trimmed, typeName } from "../lib/format";
import { restsOn, type Ask, type KnownCurve } from "../lib/jobfile/preview";

const HEIGHT = 190;
const LEFT = 34;
const TOP = 10;
const BOTTOM = 24;
/** Widest that a letter of a curve's name is, on average. */
const LETTER = 6.5;

function niceTop(value: number): number {
  const step = 10 ** Math.floor(Math.log10(value));
  return ([1, 2, 2.5, 5, 10].find((factor) => factor * step >= value) ?? 10) * step;
}

interface Props {
  curves: KnownCurve[];
  /** The range asked for. */
  ask?: Ask | undefined;
  /** The GPU count whose value is said while nothing is pointed at. */
  start?: number;
}

/** Steps per second against the GPU count; the range asked for is the tinted band. */
export function CurveChart({ curves, ask, start }: Props) {
  const { ref, width } = useElementSize();
  const [pointed, setPointed] = useState<number | null>(null);
  const longest = Math.max(...curves.map((curve) => curve.steps.length), 2);
  const top = niceTop(Math.max(...curves.flatMap((curve) => curve.steps), 0.001));
  const right = width - 58;
  const x = (gpus: number) => LEFT + 12 + ((gpus - 1) / (longest - 1)) * (right - LEFT - 12);
  const y = (value: number) => HEIGHT - BOTTOM - (value / top) * (HEIGHT - BOTTOM - TOP);
  const every = Math.ceil(longest / 12);
  const main = curves[0];
  const first = Math.min(start ?? ask?.max ?? longest, longest);
  const at = pointed ?? Math.min(first, main?.steps.length ?? first);
  const value = main?.steps[at - 1];
  const single = main?.steps[0];
  return (
    <div ref={ref} style={{ minHeight: HEIGHT + 20 }}>
      {width > 0 && main && (
        <svg
          width={width} height={HEIGHT} role="img" aria-label={`Steps per second on 1 to ${longest} GPUs`} onPointerLeave={() => setPointed(null)}
          onPointerMove={(event) => {
            const px = event.clientX - event.currentTarget.getBoundingClientRect().left;
            setPointed(Math.min(longest, Math.max(1, Math.round(1 + ((px - LEFT - 12) / (right - LEFT - 12)) * (longest - 1)))));
          }}
        >
          {ask && <Band ask={ask} longest={longest} x={x} />}
          {[0, 0.25, 0.5, 0.75, 1].map((share) => (
            <g key={share}>
              <path d={`M${LEFT} ${y(top * share)}H${right}`} stroke="var(--grid)" />
              <text x={LEFT - 6} y={y(top * share) + 4} textAnchor="end">{trimmed(top * share)}</text>
            </g>
          ))}
          {Array.from({ length: longest }, (_, i) => i + 1).filter((n) => n === 1 || n === longest || (n % every === 0 && longest - n >= every / 2)).map((n) => <text key={n} x={x(n)} y={HEIGHT - 6} textAnchor="middle">{n}</text>)}
          {single !== undefined && <Linear single={single} longest={longest} top={top} ends={curves.map((curve) => ({ x: x(curve.steps.length), y: y(curve.steps.at(-1) ?? 0) }))} x={x} y={y} />}
          {curves.map((curve, i) => <Line key={curve.type} curve={curve} main={i === 0} x={x} y={y} width={width} />)}
          {value !== undefined && (
            <g pointerEvents="none">
              <path d={`M${x(at)} ${y(value)}V${HEIGHT - BOTTOM}`} stroke="var(--accent)" strokeDasharray="2 3" />
              <circle cx={x(at)} cy={y(value)} r={5} fill="var(--accent)" stroke="var(--surface)" strokeWidth="1.5" />
            </g>
          )}
        </svg>
      )}
      {main && value !== undefined && single !== undefined && (
        <p className="sub" style={{ paddingLeft: LEFT }}>
          <b style={{ color: "var(--ink)", fontWeight: 600 }}>{at}{THIN}×{THIN}{typeName(main.type)}, {number(value)} steps/s</b>, {percent(value / (single * at))} of linear, {restsOn(main, at)}
        </p>
      )}
    </div>
  );
}

export interface Spot {
  x: number;
  y: number;
}

interface DrawProps {
  x: (gpus: number) => number;
  y: (value: number) => number;
}

/** Whether a word around the spot stays off the names at the ends of curves, which begin there. */
export function isClear(spot: Spot, ends: Spot[]): boolean {
  return ends.every((end) => spot.x < end.x - 24 || spot.x > end.x + 84 || Math.abs(spot.y - end.y) > 16);
}

function Band({ ask, longest, x }: { ask: Ask; longest: number; x: DrawProps["x"] }) {
  const max = Math.min(ask.max, longest);
  const label = `asked for: ${partOf(ask.sharePercent, ask.min === max ? String(max) : `${ask.min} to ${max}`)}`;
  return (
    <g>
      <rect x={x(ask.min) - 5} y={TOP} width={Math.max(10, x(max) - x(Math.min(ask.min, longest)) + 10)} height={HEIGHT - BOTTOM - TOP} fill="var(--accent-soft)" opacity=".75" />
      <text {...anchored((x(Math.min(ask.min, longest)) + x(max)) / 2, LEFT, x(longest), label)} y={HEIGHT - BOTTOM - 6}>{label}</text>
    </g>
  );
}

function Linear({ single, longest, top, ends, x, y }: DrawProps & { single: number; longest: number; top: number; ends: Spot[] }) {
  const reach = Math.min(longest, top / single);
  if (reach <= 1) return null;
  const spot = (share: number) => ({ x: x(reach * share) - 24, y: y(single * reach * share) - 6 });
  const place = reach > 2 ? [0.86, 0.7, 0.55].find((share) => isClear(spot(share), ends)) : undefined;
  return (
    <g>
      <path d={`M${x(1)} ${y(single)}L${x(reach)} ${y(single * reach)}`} stroke="var(--ink-3)" strokeDasharray="1.5 3.5" />
      {place !== undefined && <text x={x(reach * place) - 6} y={y(single * reach * place) - 2} textAnchor="end">linear</text>}
    </g>
  );
}

/** A name longer than the margin beside a curve's end stands above it, ending at the chart's edge. */
export function nameAt(end: Spot, name: string, width: number): Spot & { anchor: "start" | "end" } {
  const fits = end.x + 8 + name.length * LETTER <= width;
  return fits ? { x: end.x + 8, y: end.y + 4, anchor: "start" } : { x: width, y: Math.max(TOP + 4, end.y - 10), anchor: "end" };
}

function Line({ curve, main, x, y, width }: DrawProps & { curve: KnownCurve; main: boolean; width: number }) {
  const colour = main ? "var(--ink)" : "var(--ink-2)";
  const path = curve.steps.map((value, i) => `${i === 0 ? "M" : "L"}${x(i + 1).toFixed(1)} ${y(value).toFixed(1)}`).join("");
  const last = curve.steps.length;
  const name = typeName(curve.type);
  const place = nameAt({ x: x(last), y: y(curve.steps[last - 1] ?? 0) }, name, width);
  return (
    <g>
      <path d={path} fill="none" stroke={colour} strokeWidth="1.8" strokeDasharray={curve.measured ? undefined : "4 3"} />
      {curve.measured && curve.steps.map((value, i) => <circle key={i} cx={x(i + 1)} cy={y(value)} r={2.2} fill={colour} />)}
      <text x={place.x} y={place.y} textAnchor={place.anchor} style={{ fill: colour, fontWeight: main ? 600 : 400 }}>{name}</text>
    </g>
  );
}
