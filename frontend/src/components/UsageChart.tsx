import { useMemo } from "react";
import type { Usage } from "../api/types";
import { number, typeName, withUnit } from "../lib/format";
import { tone } from "../lib/charts/tone";
import { columnLabel, columnsOf, type Step } from "../lib/charts/usagePeriod";
import TimeChart, { type Line } from "./TimeChart";

interface Props {
  found: Usage;
  step: Step;
  onRead: (text: string | null) => void;
}

/** GPU-hours of each day or month, by type on top of each other. */
export default function UsageChart({ found, step, onRead }: Props) {
  const columns = useMemo(() => columnsOf({ from: found.from_day, to: found.to_day }, step), [found.from_day, found.to_day, step]);
  const names = useMemo(() => columns.map(columnLabel), [columns]);
  const types = useMemo(() => [...new Set(found.results.flatMap((row) => row.by_type.map((part) => part.type)))].sort(), [found]);
  const measured = found.results.some((row) => row.used_gpu_hours !== null);
  const lines = useMemo(() => {
    const rows = new Map(found.results.map((row) => [row.key, row]));
    const held = types.map((type, tone): Line => ({
      label: typeName(type), kind: "bar", tone,
      values: columns.map((key) => rows.get(key)?.by_type.find((part) => part.type === type)?.gpu_hours ?? 0),
    }));
    if (!measured) return held;
    return [...held, { label: "used", kind: "line", tone: 0, token: "accent", values: columns.map((key) => rows.get(key)?.used_gpu_hours ?? null) } satisfies Line];
  }, [found, columns, types, measured]);
  const read = (at: number | null) => {
    const name = at === null ? undefined : names[at];
    if (at === null || name === undefined) return onRead(null);
    const parts = lines.filter((line) => line.values[at]).map((line) => `${withUnit(number(line.values[at] ?? 0), "h")} ${line.label}`);
    onRead(`${name}: ${parts.join(", ") || "nothing"}`);
  };
  return (
    <div className="pb">
      <TimeChart x={names} lines={lines} label={`GPU-hours from ${names[0]} to ${names.at(-1)}, by accelerator type`} onRead={read} />
      <div className="legend">
        {types.map((type, i) => <span key={type}><i className="lg" style={{ background: tone(i) }} />{typeName(type)}</span>)}
        {measured && <span><i style={{ width: 16, height: 2, background: "var(--accent)" }} />used{found.results.some((row) => row.emulated) && " (emulated)"}</span>}
      </div>
    </div>
  );
}
