import { useEffect, useState } from "react";
import { usePartitions } from "../../api/clusterHooks";
import { useAcceleratorTypes, useModelTypes, useProjects } from "../../api/hooks";
import { Skeleton } from "../../components/Panel";
import { count, money } from "../../lib/format";
import { useCluster } from "../../lib/live/liveContext";
import { Field, NumberField, TextField, errorAt, type FieldError } from "./fields";
import { GpuFields } from "./GpuFields";
import { LimitFields } from "./LimitFields";
import { ClusterField } from "./ClusterField";
import { PartitionField } from "./PartitionField";
import css from "./submit.module.css";
import type { Draft } from "./useDraft";

/** About that of the form, so that what stands below it keeps its place. */
const FORM_HEIGHT = 825;

interface Props {
  draft: Draft;
  errors: FieldError[];
}

export function FormTab({ draft, errors }: Props) {
  const models = useModelTypes();
  const asked = [models, useProjects(), useAcceleratorTypes(), usePartitions()];
  if (asked.some((query) => query.isLoading)) return <div className="pb"><Skeleton height={FORM_HEIGHT} /></div>;
  return (
    <>
      <div className="block g2">
        <TextField draft={draft} errors={errors} label="Name" path="name" placeholder="the program's name" />
        <ProjectField draft={draft} errors={errors} />
        <ClusterField draft={draft} errors={errors} />
        <PartitionField draft={draft} errors={errors} />
      </div>
      <div className="block">
        <Program draft={draft} errors={errors} />
        <div className={`g3 ${css.steps}`}>
          <NumberField draft={draft} errors={errors} label="Steps" path="total_steps" unit="steps" />
          <NumberField draft={draft} errors={errors} label="Global batch" path="batch_size" unit="samples" placeholder={defaultBatch(draft, models.data ?? [])} />
          <NumberField draft={draft} errors={errors} label="Checkpoint every" path="checkpoint.every_steps" unit="steps" placeholder="200" />
        </div>
      </div>
      <GpuFields draft={draft} errors={errors} />
      <LimitFields draft={draft} errors={errors} />
    </>
  );
}

function defaultBatch(draft: Draft, models: { name: string; default_batch_size: number | null }[]): string {
  const size = models.find((model) => model.name === draft.get("model_type"))?.default_batch_size;
  return size == null ? "" : String(size);
}

function ProjectField({ draft, errors }: Props) {
  const projects = useProjects().data ?? [];
  const currency = useCluster()?.cluster.currency ?? "USD";
  const chosen = projects.find((project) => project.key === draft.get("project"));
  const quota = chosen && (chosen.gpu_limit === null ? `${count(chosen.gpus_allocated, "GPU")} allocated` : `${chosen.gpus_allocated} of ${chosen.gpu_limit} GPUs allocated`);
  const hint = chosen ? [quota, chosen.spend_month === null ? "" : `${money(chosen.spend_month, currency)} this month`].filter(Boolean).join(", ") : undefined;
  return (
    <Field label="Project" path="project" errors={errors} hint={hint}>
      {(props) => (
        <select {...props} name="project" className="in" value={String(draft.get("project") ?? "")} onChange={(event) => draft.set("project", event.target.value)}>
          {!chosen && <option value="">choose</option>}
          {projects.map((project) => <option key={project.key} value={project.key}>{project.name}</option>)}
        </select>
      )}
    </Field>
  );
}

function Program({ draft, errors }: Props) {
  const models = useModelTypes();
  const chosen = draft.get("model_type");
  const command = draft.get("command");
  const [own, setOwn] = useState(command !== undefined);
  const first = models.data?.[0]?.name;
  const unset = !own && chosen === undefined && command === undefined;
  const { chooseModel } = draft;
  useEffect(() => {
    if (unset && first) chooseModel(first);
  });
  const choose = (name: string | undefined) => {
    setOwn(name === undefined);
    chooseModel(name);
  };
  const error = errorAt(errors, "model_type");
  return (
    <div className="f">
      <span className="lab1" id="program">Program</span>
      <div className="pick" role="radiogroup" aria-labelledby="program">
        {(models.data ?? []).map((model) => (
          <button key={model.name} type="button" role="radio" aria-checked={chosen === model.name} className="card" title={model.description} onClick={() => choose(model.name)}>
            <span className="ell" style={{ display: "block" }}>{model.name}</span>
            <small>{model.runs_seen > 0 ? `${count(model.runs_seen, "run")} on real GPUs` : "catalogue only"}</small>
          </button>
        ))}
        <button type="button" role="radio" aria-checked={own && chosen === undefined} className="card" onClick={() => choose(undefined)}>
          Command<small>your own</small>
        </button>
      </div>
      {error && <div className="h bad">{error}</div>}
      {own && chosen === undefined && (
        <Field label="Command, run once per GPU" path="command" errors={errors} hint="Import the evenkeel SDK in it, so that it can be resized and resumed.">
          {(props) => <textarea {...props} name="command" className="in mono" rows={2} style={{ fontSize: 12 }} placeholder="python train.py --lr 0.1" value={String(command ?? "")} onChange={(event) => draft.set("command", event.target.value)} />}
        </Field>
      )}
    </div>
  );
}
