import { useMemo, useState } from "react";
import type { JobPriority } from "../../api/types";
import TimeChart, { type Line } from "../../components/TimeChart";
import { integer, moment } from "../../lib/format";
import { partsOf, takenOff } from "../../lib/job/priority";
import { tone } from "../../lib/charts/tone";

/** A priority over the next days, its parts on top of each other in the fills of the bar above; what it comes to is a line where something is taken off. */
export default function CourseChart({ course, site, nice }: Pick<JobPriority, "course" | "site" | "nice">) {
  const [at, setAt] = useState<number | null>(null);
  const heaps = useMemo(() => course.map((point) => partsOf({ factors: point.factors, site })), [course, site]);
  const times = useMemo(() => course.map((point) => Date.parse(point.at) / 1000), [course]);
  const taken = takenOff({ site, nice });
  const lines = useMemo(() => {
    const areas = (heaps[0] ?? []).map((part, i): Line => ({ label: part.word, kind: "area", tone: part.fill, values: heaps.map((heap) => heap[i]?.points ?? 0) }));
    return taken > 0 ? [...areas, { label: "priority", kind: "line", tone: 0, token: "accent", dots: false, values: course.map((point) => point.priority) } satisfies Line] : areas;
  }, [heaps, course, taken]);
  const index = at ?? course.length - 1;
  const [point, parts] = [course[index], heaps[index] ?? []];
  return (
    <div>
      <TimeChart x={times} lines={lines} height={140} label={`Priority over the next days, made of ${parts.map((part) => part.word).join(", ")}`} onRead={setAt} />
      {point && (
        <div className="legend">
          <span>{taken > 0 && <i style={{ width: 16, height: 2, background: "var(--accent)" }} />}{moment(new Date(point.at), new Date())}: {integer(point.priority)}</span>
          {parts.map((part) => <span key={part.name}><i className="lg" style={{ background: tone(part.fill) }} />{part.word} {integer(Math.round(part.points))}</span>)}
          {taken > 0 && <span>taken off {integer(taken)}</span>}
        </div>
      )}
    </div>
  );
}
