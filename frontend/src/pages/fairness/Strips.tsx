import { useElementSize } from "@mantine/hooks";
import type { PointerEvent } from "react";
import type { FairnessHistory, FairnessSeries } from "../../api/types";
import { tickLabel } from "../../lib/charts/bars";
import { columnsOf, keyOf, pointAt, spreadWords, type Span } from "./fairness";
import { moment } from "../../lib/format";
import { dayTick } from "../../lib/charts/stack";
import { Name } from "../../components/Name";
import { isolated } from "../../lib/isolated";

const HEIGHT = 46;
/** Above and below, so that no dot is cut. */
const EDGE = 4;

interface Props {
  found: FairnessHistory;
  by: "project" | "user";
  span: Span;
  atMs: number | null;
  onRead: (atMs: number | null) => void;
}

/** A strip for each project or user on one time axis: from the slowest job to the fastest, a dot for the middle one. */
export function Strips({ found, by, span, atMs, onRead }: Props) {
  if (found.results.length === 0) return <p className="empty">No job of {by === "user" ? "these people" : "these projects"} had GPUs or waited in the {span.label.toLowerCase()}. A point is kept every minute.</p>;
  const [from, to] = [Date.parse(found.from_at), Date.parse(found.to_at)];
  return (
    <div className="pb" style={{ display: "grid", gap: 10, gridTemplateColumns: "minmax(0, 1fr)" }}>
      {found.results.map((series) => <Strip key={keyOf(series)} series={series} from={from} to={to} atMs={atMs} onRead={onRead} />)}
      <Times from={from} to={to} />
      <div className="legend">
        <span>{atMs === null ? "Point at a strip to read it" : moment(new Date(atMs), new Date())}</span>
        <span><i style={{ width: 7, height: 7, borderRadius: 4, background: "var(--ink-2)" }} />median of the jobs</span>
        <span><i style={{ width: 7, height: 7, borderRadius: 4, border: "1.5px solid var(--ink-2)" }} />the slowest job</span>
        <span><i style={{ width: 2, height: 12, background: "var(--line-2)" }} />slowest to fastest; the upper line is 1, as fast as alone, the lowest 0</span>
      </div>
      {found.next !== null && <p className="sub" style={{ margin: 0 }}>There are more; choose a project to see those below it, or use the command evenkeel fairness.</p>}
    </div>
  );
}

function Strip({ series, from, to, atMs, onRead }: { series: FairnessSeries; from: number; to: number; atMs: number | null; onRead: (atMs: number | null) => void }) {
  const { ref, width } = useElementSize();
  const columns = columnsOf(series.points, from, to, Math.max(0, width - 2 * EDGE), HEIGHT - 2 * EDGE);
  const read = atMs === null ? null : pointAt(series.points, atMs, (to - from) / 20);
  const name = series.user ? series.user.name : (series.project?.name ?? "");
  const figures = (read ?? series.figures).relative_throughput;
  const point = (event: PointerEvent<SVGSVGElement>) => {
    const box = event.currentTarget.getBoundingClientRect();
    const share = Math.min(1, Math.max(0, (event.clientX - box.left - EDGE) / (box.width - 2 * EDGE)));
    onRead(from + share * (to - from));
  };
  const cursor = atMs === null ? null : ((atMs - from) / (to - from)) * Math.max(0, width - 2 * EDGE);
  return (
    <div>
      <div style={{ display: "flex", justifyContent: "space-between", gap: 12, fontSize: 12, minWidth: 0 }}>
        <span className="ell" title={series.user?.email ?? series.project?.key}><Name>{name}</Name>{series.user && <span className="sub" style={{ marginLeft: 5 }}>in <Name>{series.project?.name ?? ""}</Name></span>}</span>
        <span style={{ fontVariantNumeric: "tabular-nums", color: "var(--ink-2)", whiteSpace: "nowrap" }}>{read === null && atMs !== null ? "nothing known" : spreadWords(figures)}</span>
      </div>
      <div ref={ref} style={{ height: HEIGHT, overflow: "hidden" }}>
        {width > 0 && (
          <svg width={width} height={HEIGHT} role="img" aria-label={`Relative throughput of ${isolated(name)} over time: ${spreadWords(series.figures.relative_throughput)}`} onPointerMove={point} onPointerLeave={() => onRead(null)} style={{ display: "block", touchAction: "pan-y" }}>
            <g transform={`translate(${EDGE} ${EDGE})`}>
              {[0, 0.5, 1].map((share) => <path key={share} d={`M0 ${share * (HEIGHT - 2 * EDGE)}H${width - 2 * EDGE}`} stroke={share === 1 ? "var(--line-2)" : "var(--grid)"} />)}
              {cursor !== null && <path d={`M${cursor} 0V${HEIGHT - 2 * EDGE}`} stroke="var(--accent)" />}
              {columns.map(({ x, top, middle, bottom, point: { at } }) => (
                <g key={at}>
                  <path d={`M${x} ${top}V${bottom}`} stroke="var(--line-2)" strokeWidth="1.5" />
                  {bottom - middle > 1 && <circle cx={x} cy={bottom} r={1.8} fill="var(--surface)" stroke="var(--ink-2)" strokeWidth="1.2" />}
                  <circle cx={x} cy={middle} r={2.2} fill="var(--ink-2)" />
                </g>
              ))}
            </g>
          </svg>
        )}
      </div>
    </div>
  );
}

function Times({ from, to }: { from: number; to: number }) {
  const days = (to - from) / 86_400_000;
  const shown = [0, 0.5, 1].map((share) => from + share * (to - from));
  return (
    <div style={{ display: "flex", justifyContent: "space-between", fontSize: 11, color: "var(--axis)" }} aria-hidden>
      {shown.map((at) => <span key={at}>{days >= 2 ? dayTick(at / 1000) : tickLabel(at, to - from)}</span>)}
    </div>
  );
}
