import { useElementSize } from "@mantine/hooks";
import type { SimulationCurve } from "../../api/types";
import { duration, percent, trimmed } from "../../lib/format";
import css from "./lab.module.css";

const HEIGHT = 190;
const LEFT = 62;
const RIGHT = 14;
const TOP = 8;
const BOTTOM = 24;

export interface Chosen {
  base: string;
  other: string;
}

interface Props {
  curves: SimulationCurve[];
  chosen: Chosen;
  label: string;
  x: "seconds" | "share";
  y: "seconds" | "share";
}

const LOOKS = {
  base: { stroke: "var(--ink)", width: 2, dash: undefined },
  other: { stroke: "var(--accent)", width: 2, dash: "6 3" },
  rest: { stroke: "var(--line-2)", width: 1.2, dash: undefined },
};
export const lookOf = (trial: string, chosen: Chosen) => LOOKS[trial === chosen.base ? "base" : trial === chosen.other ? "other" : "rest"];

/** One line per policy: the two that are compared stand out, the others are grey behind them. */
export function CurvesChart({ curves, chosen, label, x: unitX, y: unitY }: Props) {
  const { ref, width } = useElementSize();
  const points = curves.flatMap((curve) => curve.points);
  if (points.length === 0) return <p className="empty">No job has finished, so there is nothing to draw.</p>;
  const first = Math.min(...points.map(([at]) => at ?? 0), 0);
  const last = Math.max(...points.map(([at]) => at ?? 0), first + 1e-9);
  const top = unitY === "share" ? 1 : Math.max(...points.map(([, value]) => value ?? 0), 1e-9);
  const x = (at: number) => LEFT + ((at - first) / (last - first)) * (width - LEFT - RIGHT);
  const y = (value: number) => TOP + (1 - value / top) * (HEIGHT - TOP - BOTTOM);
  const ranked = [...curves].sort((a, b) => rank(a, chosen) - rank(b, chosen));
  const ticks = (width < 420 ? [0, 0.5, 1] : [0, 0.25, 0.5, 0.75, 1]).map((share) => first + share * (last - first));
  return (
    <div ref={ref} style={{ minHeight: HEIGHT, padding: "0 0 8px" }}>
      {width > 0 && (
        <svg width={width} height={HEIGHT} role="img" aria-label={label} style={{ display: "block", font: "11px inherit" }}>
          {[0, 0.5, 1].map((share) => (
            <g key={share}>
              <path d={`M${LEFT} ${y(top * share)}H${width - RIGHT}`} stroke="var(--grid)" />
              <text x={LEFT - 6} y={y(top * share) + 4} textAnchor="end" fill="var(--axis)" fontSize={11}>{say(top * share, unitY)}</text>
            </g>
          ))}
          {ticks.map((at) => <text key={at} x={x(at)} y={HEIGHT - 6} textAnchor={at === first ? "start" : at === last ? "end" : "middle"} fill="var(--axis)" fontSize={11}>{say(at, unitX)}</text>)}
          {ranked.map((curve) => {
            const look = lookOf(curve.trial, chosen);
            const path = curve.points.map(([at, value], i) => `${i === 0 ? "M" : "L"}${x(at ?? 0).toFixed(1)} ${y(value ?? 0).toFixed(1)}`).join("");
            return <path key={curve.trial} d={path} fill="none" stroke={look.stroke} strokeWidth={look.width} strokeDasharray={look.dash}><title>{curve.label}</title></path>;
          })}
        </svg>
      )}
    </div>
  );
}

const rank = (curve: SimulationCurve, chosen: Chosen) => (curve.trial === chosen.other ? 2 : curve.trial === chosen.base ? 1 : 0);
const say = (value: number, unit: "seconds" | "share") => (unit === "share" ? percent(value) : value === 0 ? "0" : value >= 1 ? duration(value) : trimmed(value));

export function Legend({ base, other, rest }: { base: string; other: string; rest: number }) {
  return (
    <div className={css.legend}>
      <span><i className={css.swatch} style={{ borderColor: "var(--ink)" }} />{base}</span>
      {other && <span><i className={css.swatch} style={{ borderColor: "var(--accent)", borderTopStyle: "dashed" }} />{other}</span>}
      {rest > 0 && <span><i className={css.swatch} style={{ borderColor: "var(--line-2)" }} />the others</span>}
    </div>
  );
}
