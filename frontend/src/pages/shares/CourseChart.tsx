import { useMemo, useState } from "react";
import type { JobPriority } from "../../api/types";
import TimeChart, { type Line } from "../../components/TimeChart";
import { integer, moment } from "../../lib/format";
import { tone } from "../../lib/tone";
import { factorWord } from "./PriorityBar";

/** A priority over the next days, its parts on top of each other in the greys of the bar above. */
export default function CourseChart({ course }: { course: JobPriority["course"] }) {
  const [at, setAt] = useState<number | null>(null);
  const names = (course[0]?.factors ?? []).filter((factor) => factor.weight > 0).map((factor) => factor.name);
  const times = useMemo(() => course.map((point) => Date.parse(point.at) / 1000), [course]);
  const lines = useMemo(
    () => names.map((name, tone): Line => ({ label: name, kind: "area", tone, values: course.map((point) => point.factors.find((factor) => factor.name === name)?.points ?? 0) })),
    [course, names.join()],
  );
  const point = at === null ? course.at(-1) : course[at];
  return (
    <div>
      <TimeChart x={times} lines={lines} height={140} label={`Priority over the next days, made of ${names.map(factorWord).join(", ")}`} onRead={setAt} />
      {point && (
        <div className="legend">
          <span>{moment(new Date(point.at), new Date())}: {integer(point.priority)}</span>
          {names.map((name, i) => <span key={name}><i className="lg" style={{ background: tone(i) }} />{factorWord(name)} {integer(Math.round(point.factors.find((factor) => factor.name === name)?.points ?? 0))}</span>)}
        </div>
      )}
    </div>
  );
}
