import { RangeSlider } from "@mantine/core";
import { usePartitions } from "../../api/clusterHooks";
import { useAcceleratorTypes } from "../../api/hooks";
import { money } from "../../lib/format";
import { useCluster } from "../../lib/liveContext";
import { typesWithin } from "../../lib/preview";
import { errorAt, type FieldError } from "./fields";
import css from "./submit.module.css";
import type { Draft } from "./useDraft";

const MOST_SHOWN = 64;

function marksFor(most: number, min: number, max: number) {
  const step = most <= 8 ? 1 : most <= 16 ? 2 : most <= 32 ? 4 : 8;
  const values = [1, ...Array.from({ length: Math.floor(most / step) }, (_, i) => (i + 1) * step), min, max, most];
  const near = (a: number, b: number) => a !== b && Math.abs(a - b) < step * 0.6;
  return [...new Set(values)].filter((value) => value === min || value === max || !(near(value, min) || near(value, max))).sort((a, b) => a - b).map((value) => ({ value, label: value }));
}

export function GpuFields({ draft, errors }: { draft: Draft; errors: FieldError[] }) {
  const all = useAcceleratorTypes().data ?? [];
  const partitions = usePartitions().data ?? [];
  const cluster = useCluster();
  const wanted = draft.get("gpus.types");
  const types = Array.isArray(wanted) ? wanted.map(String) : [];
  const there = typesWithin(all.map((type) => type.name), cluster, partitions, draft.get("partition"));
  const accelerators = all.filter((type) => there.includes(type.name) || types.includes(type.name));
  const offered = accelerators.filter((type) => types.length === 0 || types.includes(type.name));
  const min = Number(draft.get("gpus.min") ?? 1) || 1;
  const given = draft.get("gpus.max");
  const most = Math.min(MOST_SHOWN, Math.max(1, min, Number(given ?? 0) || 0, ...offered.map((type) => type.count)));
  const max = Math.max(min, Number(given ?? most) || most);
  const error = errorAt(errors, "gpus");
  const set = ([low, high]: [number, number]) => draft.set("gpus", { ...(draft.get("gpus") as object | undefined), min: low, max: high });
  const toggle = (name: string) => {
    const next = types.includes(name) ? types.filter((type) => type !== name) : [...types, name];
    draft.set("gpus.types", next.length === accelerators.length ? undefined : next);
  };
  return (
    <div className="block">
      <div className="f">
        <span className="lab1" id="gpus-label">GPUs</span>
        {most > 1 ? (
          <RangeSlider
            min={1} max={most} minRange={0} step={1} value={[min, max]} onChange={set} marks={marksFor(most, min, max)} label={null} size={4} thumbSize={16} mb={22} mx={8}
            thumbFromLabel="Fewest GPUs" thumbToLabel="Most GPUs"
            styles={{ bar: { background: "var(--btn)" }, track: { "--slider-track-bg": "var(--line-2)" }, thumb: { borderColor: "var(--btn)", background: "var(--surface)", borderWidth: 2 }, mark: { display: "none" }, markLabel: { fontSize: 11, color: "var(--ink-3)", marginTop: 8 } }}
          />
        ) : <span className="sub">1</span>}
        {error ? <div className="h bad">{error}</div> : <div className="h">{min === max ? `It runs on exactly ${min}.` : `It starts when ${min} ${min === 1 ? "is" : "are"} free and may grow to ${max}.`}</div>}
      </div>
      {accelerators.length > 0 && (
        <div className="f">
          <span className="lab1" id="types-label">Types allowed</span>
          <div className={`pick ${css.types}`} role="group" aria-labelledby="types-label" style={{ gridTemplateColumns: "repeat(auto-fill,minmax(190px,1fr))" }}>
            {accelerators.map((type) => (
              <button key={type.name} type="button" className="card line" aria-pressed={types.length === 0 || types.includes(type.name)} onClick={() => toggle(type.name)}>
                {type.title}
                <small>{type.price_per_gpu_hour === null ? "" : `${money(type.price_per_gpu_hour, type.currency)}/h`}</small>
              </button>
            ))}
          </div>
          <div className="h">{types.length === 0 ? "Any of them, one type at a time. Click to choose." : "One type at a time."}</div>
        </div>
      )}
    </div>
  );
}
