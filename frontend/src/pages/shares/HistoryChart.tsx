import { useMemo, useState } from "react";
import type { ShareCourse } from "../../api/types";
import TimeChart, { type Line } from "../../components/TimeChart";
import { fixed, moment, percent } from "../../lib/format";
import { isolated } from "../../lib/isolated";

/** One project's effective use against its share, and the factor that follows from both: all three are parts of one. */
export default function HistoryChart({ course }: { course: ShareCourse }) {
  const [at, setAt] = useState<number | null>(null);
  const { points } = course;
  const ranked = points.every((point) => point.factor === null);
  const times = useMemo(() => points.map((point) => Date.parse(point.at) / 1000), [points]);
  const lines = useMemo(() => {
    const drawn: Line[] = [
      { label: "use", kind: "line", tone: 0, values: points.map((point) => 100 * point.effective_usage) },
      { label: "share", kind: "line", tone: 1, dash: true, values: points.map((point) => 100 * point.norm_shares) },
    ];
    return ranked ? drawn : [...drawn, { label: "factor", kind: "line", tone: 0, token: "accent", values: points.map((point) => (point.factor === null ? null : 100 * point.factor)) } satisfies Line];
  }, [points, ranked]);
  const point = points[at ?? points.length - 1];
  return (
    <div className="pb">
      <TimeChart x={times} lines={lines} height={190} label={`Effective use, share and fair-share factor of ${isolated(course.project.name)} over time, in percent`} onRead={setAt} />
      {point && (
        <div className="legend">
          <span>{moment(new Date(point.at), new Date())}</span>
          <span><i style={{ width: 16, height: 2, background: "var(--ink-2)" }} />effective use {percent(point.effective_usage, 1)}</span>
          <span><i style={{ width: 16, borderTop: "2px dashed var(--ink-3)" }} />share {percent(point.norm_shares, 1)}</span>
          {point.factor !== null && <span><i style={{ width: 16, height: 2, background: "var(--accent)" }} />factor {fixed(point.factor, 3)}</span>}
        </div>
      )}
    </div>
  );
}
