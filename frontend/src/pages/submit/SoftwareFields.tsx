import { useState } from "react";
import { Field, TextField, type FieldError } from "./fields";
import type { Draft } from "./useDraft";

const PACKAGES = "environment.requirements";
/** Of the group as a whole, or of what has no field here. */
const UNPLACED = ["environment", "environment.digest"];
const words = (text: string) => text.split(/[\s,]+/).filter(Boolean);

interface Props {
  draft: Draft;
  errors: FieldError[];
}

/** Packages on top of the portal's own, and what a site has itself: its modules, or an image that has everything. */
export function SoftwareFields({ draft, errors }: Props) {
  const at = draft.get("environment.image") ? "environment.image" : PACKAGES;
  const placed = errors.map((error) => (UNPLACED.includes(error.field) ? { ...error, field: at } : error));
  return (
    <>
      <Packages draft={draft} errors={placed} />
      <div className="g2">
        <Modules draft={draft} errors={placed} />
        <TextField draft={draft} errors={placed} label="Image" path="environment.image" placeholder="/shared/images/pytorch.sif" hint="Instead of packages and modules: a path on the cluster's nodes, or docker://… where its tool fetches images." />
      </div>
    </>
  );
}

function Packages({ draft, errors }: Props) {
  const value = draft.get(PACKAGES);
  return (
    <Field label="Packages, a line each" path={PACKAGES} errors={errors} hint="As in a requirements file; built once for all jobs of the project that ask for the same.">
      {(props) => <textarea {...props} className="in mono" rows={3} style={{ fontSize: 12 }} placeholder="einops==0.8.1" value={value === undefined ? "" : String(value)} onChange={(event) => draft.set(PACKAGES, event.target.value.trim() ? event.target.value : undefined)} />}
    </Field>
  );
}

function Modules({ draft, errors }: Props) {
  const [text, setText] = useState<string | null>(null);
  const value = draft.get("environment.modules");
  const shown = text ?? (Array.isArray(value) ? value.join(" ") : String(value ?? ""));
  const onChange = (typed: string) => {
    setText(typed);
    draft.set("environment.modules", words(typed));
  };
  return (
    <Field label="Modules" path="environment.modules" errors={errors} hint="The site's, as module avail shows them; loaded in this order.">
      {(props) => <input {...props} name="environment.modules" className="in" placeholder="cuda/12.4 nccl" value={shown} onChange={(event) => onChange(event.target.value)} onBlur={() => setText(null)} />}
    </Field>
  );
}
