import { Modal } from "@mantine/core";
import { useId, useState, type FormEvent } from "react";
import { ApiError } from "../../api/client";
import { usePatchJob } from "../../api/hooks";
import type { JobDetail } from "../../api/types";
import { timeZone } from "../../lib/format";
import { formOf, patchOf, type Allowed, type EditForm } from "../../lib/job/jobActions";
import { hasEnded } from "../../lib/job/jobState";
import { isolated } from "../../lib/isolated";

interface Entry {
  key: keyof EditForm;
  label: string;
  hint?: string;
  type?: string;
}

const ALWAYS: Entry[] = [{ key: "name", label: "Name" }, { key: "labels", label: "Labels", hint: "key=value, separated by commas" }];
const LIVE: Entry[] = [
  { key: "total_steps", label: "Total steps", hint: "It may only grow." },
  { key: "nice", label: "Nice", hint: "Larger waits longer; only administrators lower it." },
  { key: "max_cost", label: "Maximum cost", hint: "At this cost the job is suspended with a checkpoint. Empty: no maximum." },
  { key: "max_duration", label: "Maximum duration", hint: "Time in training, in seconds or as 6h30m. Empty: none." },
  { key: "deadline", label: "Deadline", hint: `In your time zone, ${timeZone(new Date())}.`, type: "datetime-local" },
];
const ADMIN: Entry[] = [{ key: "priority", label: "Priority", hint: "Larger goes first." }];

export function EditDialog({ job, may, onClose }: { job: JobDetail; may: Allowed; onClose: () => void }) {
  const [before] = useState(() => formOf(job));
  const [form, setForm] = useState(before);
  const change = usePatchJob(job.number);
  const id = useId();
  const errors = change.error instanceof ApiError ? change.error.errors : [];
  const entries = [...ALWAYS, ...(hasEnded(job.state) ? [] : [...LIVE, ...(may.priority ? ADMIN : [])])];
  const patch = patchOf(before, form);
  const save = (event: FormEvent) => {
    event.preventDefault();
    change.mutate(patch, { onSuccess: onClose });
  };
  return (
    <Modal opened onClose={onClose} title={`Edit ${job.number} ${isolated(job.name)}`} size={460} closeButtonProps={{ "aria-label": "Close" }}>
      <form onSubmit={save} noValidate style={{ display: "grid", gap: 12 }}>
        {entries.map(({ key, label, hint, type }, i) => {
          const error = errors.find((entry) => entry.field === key || entry.field.startsWith(`${key}.`))?.message;
          return (
            <div className="f" key={key}>
              <label htmlFor={`${id}-${key}`}>{label}</label>
              <input id={`${id}-${key}`} name={key} className="in" type={type ?? "text"} value={form[key]} aria-invalid={error !== undefined} aria-describedby={`${id}-${key}-hint`}
                {...(i === 0 ? { "data-autofocus": true } : {})} onChange={(event) => setForm({ ...form, [key]: event.target.value })} />
              <div className={error ? "h bad" : "h"} id={`${id}-${key}-hint`}>{error ?? hint}</div>
            </div>
          );
        })}
        {change.error && errors.length === 0 && <div className="fault" role="alert" style={{ margin: 0 }}>{change.error.message}</div>}
        <div style={{ display: "flex", gap: 8, justifyContent: "flex-end" }}>
          <button type="button" className="btn" onClick={onClose}>Leave it</button>
          <button type="submit" className="btn pri" disabled={change.isPending || Object.keys(patch).length === 0}>{change.isPending ? "Saving" : "Save"}</button>
        </div>
      </form>
    </Modal>
  );
}
