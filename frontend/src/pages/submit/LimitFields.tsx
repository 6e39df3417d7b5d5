import { useState } from "react";
import { useLevels } from "../../api/clusterHooks";
import { useProjects } from "../../api/hooks";
import { useCluster } from "../../lib/live/liveContext";
import { timeZone } from "../../lib/format";
import { memoryOf, parseData, parseDependencies, parsePairs, showArray, showData, showDependencies, showPairs } from "../../lib/jobfile/jobFile";
import { levelsOf } from "./levels";
import { CodeFields } from "./CodeFields";
import { errorAt, Field, NumberField, TextField, type FieldError } from "./fields";
import { SoftwareFields } from "./SoftwareFields";
import type { Draft } from "./useDraft";

/** What most jobs leave as it is. */
const FOLDED = ["array", "cpus", "memory", "code", "max_duration", "environment", "data", "env"];

interface Props {
  draft: Draft;
  errors: FieldError[];
}

export function LimitFields({ draft, errors }: Props) {
  const currency = useCluster()?.cluster.currency ?? "USD";
  const wrong = FOLDED.some((path) => errorAt(errors, path) !== undefined);
  const [open, setOpen] = useState(wrong);
  const [seen, setSeen] = useState(errors);
  if (errors !== seen) {
    setSeen(errors);
    if (wrong) setOpen(true); // and it stays so when the words are gone
  }
  return (
    <>
      <div className="block">
        <div className="g3">
          <Deadline draft={draft} errors={errors} />
          <NumberField draft={draft} errors={errors} label="Most it may cost" path="max_cost" unit={currency} placeholder="no limit" />
          <NumberField draft={draft} errors={errors} label="Priority" path="priority" placeholder="0" hint="Above 0 for administrators" />
        </div>
        <div className="g3">
          <LevelField draft={draft} errors={errors} />
          <NumberField draft={draft} errors={errors} label="Nice" path="nice" placeholder="0" hint="0 to 1,000; lowers the priority" />
          <Dependencies draft={draft} errors={errors} />
        </div>
        <div className="g2">
          <NumberField draft={draft} errors={errors} label="Retries" path="retry.limit" placeholder="3" hint="After a node is lost or a run fails" />
          <Pairs draft={draft} errors={errors} label="Labels" path="labels" separator=", " placeholder="exp=cosine, seed=7" />
        </div>
      </div>
      <details className="block" style={{ display: "block" }} open={open} onToggle={(event) => setOpen(event.currentTarget.open)}>
        <summary style={{ cursor: "pointer", color: "var(--ink-2)" }}>Array, code, software, data, variables, longest duration, processors and memory</summary>
        <div style={{ display: "grid", gap: 14, marginTop: 14 }}>
          <div className="g2">
            <ArrayField draft={draft} errors={errors} />
            <TextField draft={draft} errors={errors} label="Longest duration" path="max_duration" placeholder="6h30m" />
          </div>
          <div className="g2">
            <NumberField draft={draft} errors={errors} label="Processors" path="cpus" placeholder="not set" hint="Of each node; its workers there share as many threads. Empty: one thread each." />
            <TextField draft={draft} errors={errors} label="Memory" path="memory" placeholder="16GiB" hint="Of each node, for all its processes there; a job that uses more is ended." read={memoryOf} />
          </div>
          <CodeFields draft={draft} errors={errors} />
          <SoftwareFields draft={draft} errors={errors} />
          <DataField draft={draft} errors={errors} />
          <Pairs draft={draft} errors={errors} label="Variables, a line each" path="env" separator={"\n"} placeholder="NCCL_DEBUG=WARN" lines />
          <Field label="Stopped and started again" path="restartable" errors={errors}>
            {(props) => (
              <select {...props} className="in" value={String(draft.get("restartable") ?? "")} onChange={(event) => draft.set("restartable", event.target.value === "" ? undefined : event.target.value === "true")}>
                <option value="">As its program says: with the SDK</option>
                <option value="true">Yes: it saves on SIGTERM and finds its files</option>
                <option value="false">No: it runs to its end</option>
              </select>
            )}
          </Field>
        </div>
      </details>
    </>
  );
}

/** Where the cluster has levels of service: those that jobs of the chosen project may ask for. */
function LevelField({ draft, errors }: Props) {
  const levels = useLevels().data ?? [];
  const projects = useProjects().data ?? [];
  const offered = levelsOf(levels, projects, draft.get("project"));
  const standard = levels.find((level) => level.is_default);
  const chosen = draft.get("qos");
  const names = new Set([...offered.map((level) => level.name), ...(chosen === undefined ? [] : [String(chosen)])]);
  return (
    <Field label="QoS" path="qos" errors={errors}>
      {(props) => (
        <select {...props} name="qos" className="in" value={String(chosen ?? "")} onChange={(event) => draft.set("qos", event.target.value || undefined)}>
          <option value="">{standard ? `${standard.name}, the default` : "none"}</option>
          {[...names].map((name) => <option key={name} value={name}>{name}</option>)}
        </select>
      )}
    </Field>
  );
}

function Dependencies({ draft, errors }: Props) {
  const [text, setText] = useState<string | null>(null);
  const onChange = (typed: string) => {
    setText(typed);
    draft.set("dependencies", parseDependencies(typed));
  };
  return (
    <Field label="After other jobs" path="dependencies" errors={errors} hint="afterok, afterany, afternotok or singleton">
      {(props) => <input {...props} name="dependencies" className="in" placeholder="afterok:12,13 singleton" value={text ?? showDependencies(draft.get("dependencies"))} onChange={(event) => onChange(event.target.value)} onBlur={() => setText(null)} />}
    </Field>
  );
}

function ArrayField({ draft, errors }: Props) {
  return (
    <Field label="Array" path="array" errors={errors} hint="One job for each index; after % how many run at once. A job finds its own in EVENKEEL_ARRAY_INDEX.">
      {(props) => <input {...props} name="array" className="in" placeholder="one job; or 0-15%4" value={showArray(draft.get("array"))} onChange={(event) => draft.set("array", event.target.value)} />}
    </Field>
  );
}

function Deadline({ draft, errors }: Props) {
  const value = draft.get("deadline");
  const at = typeof value === "string" || value instanceof Date ? new Date(value) : null;
  const local = at && !Number.isNaN(at.getTime()) ? new Date(at.getTime() - at.getTimezoneOffset() * 60_000).toISOString().slice(0, 16) : "";
  return (
    <Field label="Deadline" path="deadline" errors={errors} hint={`In your time zone, ${timeZone(at ?? new Date())}.`}>
      {(props) => <input {...props} type="datetime-local" className="in" value={local} onChange={(event) => draft.set("deadline", event.target.value ? new Date(event.target.value).toISOString() : undefined)} />}
    </Field>
  );
}

function DataField({ draft, errors }: Props) {
  const [text, setText] = useState<string | null>(null);
  const before = draft.get("data");
  const onChange = (typed: string) => {
    setText(typed);
    draft.set("data", parseData(typed, before));
  };
  return (
    <Field label="Data, a line each" path="data" errors={errors} hint="A path of its nodes or a URL, found as EVENKEEL_DATA_DIR/name; a store's secret is named on the YAML tab.">
      {(props) => <textarea {...props} className="in mono" rows={3} style={{ fontSize: 12 }} placeholder="imagenet=s3://datasets/imagenet" value={text ?? showData(before)} onChange={(event) => onChange(event.target.value)} onBlur={() => setText(null)} />}
    </Field>
  );
}

interface PairsProps extends Props {
  label: string;
  path: string;
  separator: string;
  placeholder: string;
  lines?: boolean;
}

function Pairs({ draft, errors, label, path, separator, placeholder, lines = false }: PairsProps) {
  const [text, setText] = useState<string | null>(null);
  const shown = text ?? showPairs(draft.get(path), separator);
  const onChange = (typed: string) => {
    setText(typed);
    draft.set(path, parsePairs(typed, lines ? /\n/ : /[,\n]/));
  };
  return (
    <Field label={label} path={path} errors={errors}>
      {(props) =>
        lines ? (
          <textarea {...props} className="in mono" rows={3} style={{ fontSize: 12 }} placeholder={placeholder} value={shown} onChange={(event) => onChange(event.target.value)} onBlur={() => setText(null)} />
        ) : (
          <input {...props} className="in" placeholder={placeholder} value={shown} onChange={(event) => onChange(event.target.value)} onBlur={() => setText(null)} />
        )
      }
    </Field>
  );
}
