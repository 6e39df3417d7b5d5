import { useElementSize } from "@mantine/hooks";
import { useMemo, useState, type KeyboardEvent } from "react";
import { useGantt } from "../../api/labHooks";
import type { SimulationGantt } from "../../api/types";
import { Loadable, Panel, Skeleton } from "../../components/Panel";
import { jobColour } from "../../lib/colour";
import { count, duration } from "../../lib/format";
import css from "./lab.module.css";
import { Name } from "../../components/Name";
import { isolated } from "../../lib/isolated";

/** Height of a GPU: few of them have more. */
const laneOf = (gpus: number) => Math.max(5, Math.min(16, Math.floor(160 / Math.max(1, gpus))));
/** Of the whole width, by one press of an arrow key. */
const STEP = 1 / 200;

/** Which job held which GPUs under both policies, with one cursor in both. */
export function Gantts({ id, base, other }: { id: string; base: string; other: string }) {
  const shown = [useGantt(id, base), useGantt(id, other === base ? "" : other)].slice(0, other && other !== base ? 2 : 1);
  const span = Math.max(...shown.map((query) => query.data?.span_s ?? 0), 1e-9);
  const [cursor, setCursor] = useState<number | null>(null);
  const keys = (event: KeyboardEvent) => {
    const step = event.key === "ArrowRight" ? STEP : event.key === "ArrowLeft" ? -STEP : 0;
    if (step === 0) return;
    event.preventDefault();
    setCursor((at) => Math.min(1, Math.max(0, (at ?? 0) + step * (event.shiftKey ? 10 : 1))));
  };
  return (
    <Panel title="Allocations" meta="a colour per job; the cursor stands at the same time in both, moved by pointer or arrow keys">
      <div role="group" aria-label="Allocations over time; arrow keys move the cursor" tabIndex={0} onKeyDown={keys} onPointerLeave={() => setCursor(null)}>
        {shown.map((query, i) => (
          <Loadable key={i} query={query} what="The allocations" skeleton={<Skeleton height={80} />}>
            {(gantt) => <Drawing gantt={gantt} span={span} cursor={cursor} onCursor={setCursor} />}
          </Loadable>
        ))}
      </div>
    </Panel>
  );
}

/** `span`: seconds of the longer of both, which have one scale. */
function Drawing({ gantt, span: whole, cursor, onCursor }: { gantt: SimulationGantt; span: number; cursor: number | null; onCursor: (share: number) => void }) {
  const { ref, width } = useElementSize();
  const lane = laneOf(gantt.rows.length);
  const height = Math.max(20, gantt.rows.length * lane);
  const numbers = useMemo(() => new Map([...new Set(gantt.spans.map((span) => span.job))].map((job, i) => [job, i])), [gantt]);
  const bars = useMemo(() => gantt.spans.map((span, i) => {
    const x = (span.start_s / whole) * width;
    const right = (span.end_s / whole) * width;
    return <rect key={i} x={x} y={span.gpu_from * lane} width={Math.max(0.5, right - x)} height={(span.gpu_to - span.gpu_from + 1) * lane - 1} fill={jobColour(numbers.get(span.job) ?? 0)} />;
  }), [gantt, whole, width, numbers, lane]);
  const at = cursor === null ? null : cursor * whole;
  const held = at === null ? [] : gantt.spans.filter((span) => span.start_s <= at && at < span.end_s);
  const gpus = held.reduce((sum, span) => sum + span.gpu_to - span.gpu_from + 1, 0);
  return (
    <div className={css.gantt}>
      <p style={{ padding: "8px 0 4px" }}><b style={{ fontWeight: 600 }}><Name>{gantt.label}</Name></b> <span className="sub" aria-live="polite">
        {at === null ? `${count(gantt.gpus, "GPU")}${gantt.rows.length < gantt.gpus ? `, the first ${gantt.rows.length} shown` : ""}, ${duration(gantt.span_s)}` : `after ${duration(at)}: ${count(new Set(held.map((span) => span.job)).size, "job")} on ${gpus} of ${count(gantt.rows.length, "GPU")}`}
      </span></p>
      <div ref={ref}>
        {width > 0 && (
          <svg viewBox={`0 0 ${width} ${height}`} height={height} role="img" aria-label={`Allocations under ${isolated(gantt.label)}`} onPointerMove={(event) => onCursor((event.clientX - event.currentTarget.getBoundingClientRect().left) / width)}>
            <rect width={width} height={height} fill="var(--cell-free)" />
            {bars}
            {cursor !== null && <path d={`M${cursor * width} 0V${height}`} stroke="var(--ink)" />}
          </svg>
        )}
      </div>
    </div>
  );
}
