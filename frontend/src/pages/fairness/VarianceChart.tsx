import { useMemo, useState } from "react";
import type { FairnessHistory } from "../../api/types";
import TimeChart, { type Line } from "../../components/TimeChart";
import { moment, variance } from "../../lib/format";

/** The cluster's variance over time, with the bound of the policy that was in force. */
export default function VarianceChart({ found, onRead }: { found: FairnessHistory; onRead: (atMs: number | null) => void }) {
  const [at, setAt] = useState<number | null>(null);
  const points = useMemo(() => found.results[0]?.points ?? [], [found]);
  const times = useMemo(() => points.map((point) => Date.parse(point.at) / 1000), [points]);
  const bounded = points.some((point) => point.v_bound !== null);
  const lines = useMemo(() => {
    const drawn: Line[] = [{ label: "variance", kind: "line", tone: 0, values: points.map((point) => point.variance) }];
    return bounded ? [...drawn, { label: "bound", kind: "line", tone: 0, token: "bad", dash: true, dots: false, values: points.map((point) => point.v_bound) } satisfies Line] : drawn;
  }, [points, bounded]);
  const point = points[at ?? points.length - 1];
  const read = (index: number | null) => {
    setAt(index);
    onRead(index === null ? null : (times[index] ?? 0) * 1000);
  };
  if (!point || points.length < 2) return <p className="empty">A point is kept every minute: the line begins with the second.</p>;
  return (
    <div className="pb">
      <TimeChart x={times} lines={lines} height={140} label="Variance of relative throughput over time, with its bound" onRead={read} />
      <div className="legend">
        <span>{moment(new Date(point.at), new Date())}</span>
        <span><i style={{ width: 16, height: 2, background: "var(--ink-2)" }} />variance {point.variance === null ? "not known" : variance(point.variance)}</span>
        {point.v_bound === null ? <span>no bound: the policy sets none</span> : <span><i style={{ width: 16, borderTop: "2px dashed var(--bad)" }} />bound {variance(point.v_bound)}</span>}
      </div>
    </div>
  );
}
