import { useDebouncedValue } from "@mantine/hooks";
import { useState } from "react";
import { ApiError } from "../../api/client";
import { useApplyPolicy, usePolicyPreview } from "../../api/hooks";
import type { PolicyInForce, PolicyInfo } from "../../api/types";
import { Panel } from "../../components/Panel";
import { ParameterField } from "../../components/ParameterField";
import { fieldsOf, show } from "../../lib/schemaForm";
import { PolicyEffect } from "./PolicyEffect";
import css from "./policy.module.css";

const SETTLES_MS = 500;
const PRESETS: Record<string, string> = { neuron: "KISTI Neuron", slurm: "Slurm's defaults" };

interface Props {
  kind: PolicyInfo;
  inForce: PolicyInForce;
  onApplied: () => void;
}

/** The parameters of one policy, as its schema describes them. */
export function PolicyForm({ kind, inForce, onApplied }: Props) {
  const fields = fieldsOf(kind.schema);
  const current = kind.name === inForce.name ? inForce.parameters : {};
  const [values, setValues] = useState<Record<string, unknown>>(() => Object.fromEntries(fields.map((field) => [field.name, current[field.name] ?? field.fallback])));
  const apply = useApplyPolicy();
  const differs = (these: Record<string, unknown>) => kind.name !== inForce.name || fields.some((field) => show(these[field.name]) !== show(current[field.name] ?? field.fallback));
  const changed = differs(values);
  const [settled] = useDebouncedValue(values, SETTLES_MS);
  const preview = usePolicyPreview(kind.name, settled, inForce.changed_at, changed && differs(settled));
  const old = settled !== values || preview.isPlaceholderData;
  const refused = apply.variables?.parameters === values ? apply.error : null; // of other values it says nothing
  const errors = [old ? null : preview.error, refused].flatMap((error) => (error instanceof ApiError ? error.errors : []));
  const at = (name: string) => errors.find((error) => error.field.split(".").includes(name))?.message;
  const submit = () => apply.mutate({ name: kind.name, parameters: values }, { onSuccess: onApplied });
  return (
    <>
    <Panel title={kind.title} meta={kind.name === inForce.name ? "in force" : "not in force"}>
      <form onSubmit={(event) => { event.preventDefault(); submit(); }} noValidate>
        {kind.presets.length > 0 && (
          <div className="pb" style={{ display: "flex", gap: 8, alignItems: "center", flexWrap: "wrap" }}>
            <span className="sub">Fill in as</span>
            {kind.presets.map((preset) => (
              <button key={preset.name} type="button" className="btn sm" onClick={() => setValues(Object.fromEntries(fields.map((field) => [field.name, preset.parameters[field.name] ?? field.fallback])))}>{PRESETS[preset.name] ?? preset.name}</button>
            ))}
          </div>
        )}
        {fields.length === 0 ? <p className="empty">It has no parameters.</p> : (
          <div className={css.fields}>
            {fields.map((field) => <ParameterField key={field.name} field={field} value={values[field.name]} error={at(field.name)} onChange={(value) => setValues({ ...values, [field.name]: value })} />)}
          </div>
        )}
        {refused && <div className="fault" role="alert">{refused.message}</div>}
        <div className={css.foot}>
          <span className="sub grow">{apply.isSuccess && !changed ? "In force from the next round on." : changed ? "Not applied yet." : "As it is in force."}</span>
          <button type="submit" className="btn pri" disabled={!changed || apply.isPending}>{apply.isPending ? "Applying" : kind.name === inForce.name ? "Apply" : `Change to ${kind.title}`}</button>
        </div>
      </form>
    </Panel>
    {changed && <PolicyEffect query={preview} old={old} />}
    </>
  );
}
