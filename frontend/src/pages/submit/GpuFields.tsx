import { RangeSlider } from "@mantine/core";
import { useOfferedPartitions, useOfferedTypes } from "../../api/offerHooks";
import { money } from "../../lib/format";
import { useCluster } from "../../lib/live/liveContext";
import { gpusOf, halfOf, partAsked, wholeOf, writePath, type JobFile } from "../../lib/jobfile/jobFile";
import { isOf, typesWithin } from "../../lib/jobfile/preview";
import { errorAt, type FieldError } from "./fields";
import { PartFields } from "./PartFields";
import { SLIDER } from "./slider";
import css from "./submit.module.css";
import type { Draft } from "./useDraft";

const MOST_SHOWN = 64;
const PART_FIELDS = ["gpus.share", "gpus.memory"];

function marksFor(most: number, min: number, max: number) {
  const step = most <= 8 ? 1 : most <= 16 ? 2 : most <= 32 ? 4 : 8;
  const values = [1, ...Array.from({ length: Math.floor(most / step) }, (_, i) => (i + 1) * step), min, max, most];
  const near = (a: number, b: number) => a !== b && Math.abs(a - b) < step * 0.6;
  return [...new Set(values)].filter((value) => value === min || value === max || !(near(value, min) || near(value, max))).sort((a, b) => a - b).map((value) => ({ value, label: value }));
}

export function GpuFields({ draft, errors }: { draft: Draft; errors: FieldError[] }) {
  const all = useOfferedTypes(draft.get("cluster"));
  const partitions = useOfferedPartitions(draft.get("cluster"));
  const cluster = useCluster();
  const gpus = gpusOf(draft.file);
  const isPart = partAsked(gpus) !== null;
  const wanted = gpus.types;
  const types = Array.isArray(wanted) ? wanted.map(String) : [];
  const there = typesWithin(all.map((type) => type.name), isOf(cluster, draft.get("cluster")), partitions, draft.get("partition"));
  const accelerators = all.filter((type) => there.includes(type.name) || types.includes(type.name));
  const offered = accelerators.filter((type) => types.length === 0 || types.includes(type.name));
  const min = Number(gpus.min ?? 1) || 1;
  const given = gpus.max;
  const most = Math.min(MOST_SHOWN, Math.max(1, min, Number(given ?? 0) || 0, ...offered.map((type) => type.count)));
  const max = Math.max(min, Number(given ?? most) || most);
  const error = errorAt(isPart ? errors.filter((one) => !PART_FIELDS.includes(one.field)) : errors, "gpus");
  const change = (next: JobFile) => draft.set("gpus", next);
  const toggle = (name: string) => {
    const next = types.includes(name) ? types.filter((type) => type !== name) : [...types, name];
    change(writePath(gpus, "types", next.length === accelerators.length ? undefined : next));
  };
  return (
    <div className="block">
      <div className="f">
        <span className="lab1" id="gpus-label">GPUs</span>
        <div className="seg" role="group" aria-labelledby="gpus-label" style={{ justifySelf: "start" }}>
          <button type="button" aria-pressed={!isPart} onClick={() => isPart && change(wholeOf(gpus))}>Whole GPUs</button>
          <button type="button" aria-pressed={isPart} onClick={() => isPart || change(halfOf(gpus))}>Part of one GPU</button>
        </div>
        {!isPart && (most > 1 ? (
          <RangeSlider
            {...SLIDER} min={1} max={most} minRange={0} step={1} value={[min, max]} onChange={([low, high]) => change({ ...gpus, min: low, max: high })} marks={marksFor(most, min, max)} mt={6}
            thumbFromLabel="Fewest GPUs" thumbToLabel="Most GPUs"
          />
        ) : <span className="sub">1</span>)}
        {error && <div className="h bad">{error}</div>}
        {!error && !isPart && <div className="h">{min === max ? `It runs on exactly ${min}.` : `It starts when ${min} ${min === 1 ? "is" : "are"} free and may grow to ${max}.`}</div>}
      </div>
      {isPart && <PartFields gpus={gpus} onChange={change} errors={errors} />}
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
