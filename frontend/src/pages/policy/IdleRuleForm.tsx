import { useId, useState } from "react";
import { ApiError } from "../../api/client";
import { useIdleRule, useSetIdleRule } from "../../api/hooks";
import type { IdleRule } from "../../api/types";
import { Loadable, Panel, Skeleton } from "../../components/Panel";
import { trimmed } from "../../lib/format";
import css from "./policy.module.css";

/** As people write it: minutes and percent; empty is never. */
type Form = { enabled: boolean } & Record<"utilisation_below" | "warn_after_s" | "release_after_s" | "extension_s" | "extensions_max", string>;
type Field = Exclude<keyof Form, "enabled">;

const FIELDS: { name: Field; label: string; hint: string; factor: number }[] = [
  { name: "utilisation_below", label: "Idle below, %", hint: "Mean of its GPUs. 0: only steps count.", factor: 0.01 },
  { name: "warn_after_s", label: "Warn after, min", hint: "Without a step, or below the threshold.", factor: 60 },
  { name: "release_after_s", label: "Suspend after, min", hint: "With a checkpoint. Empty: never.", factor: 60 },
  { name: "extension_s", label: "Extension, min", hint: "What asking for more time gives.", factor: 60 },
  { name: "extensions_max", label: "Extensions", hint: "How often, until it is released.", factor: 1 },
];

const formOf = (rule: IdleRule): Form => ({
  enabled: rule.enabled,
  ...(Object.fromEntries(FIELDS.map(({ name, factor }) => [name, rule[name] === null ? "" : trimmed((rule[name] ?? 0) / factor).replaceAll(",", "")])) as Record<Field, string>),
});

/** What is no number goes as it is: the portal says what is wrong with it. */
const ruleOf = (form: Form) => ({
  enabled: form.enabled,
  ...Object.fromEntries(FIELDS.map(({ name, factor }) => [name, form[name].trim() === "" ? null : Number.isFinite(Number(form[name])) ? Number(form[name]) * factor : form[name]])),
}) as IdleRule;

/** What the switch does as it stands. */
export const switchHint = (form: Pick<Form, "enabled" | "release_after_s">) => {
  if (!form.enabled) return "Off: idle jobs are neither warned nor suspended.";
  return form.release_after_s.trim() === "" ? "On: idle jobs are warned, and none is suspended." : "On: idle jobs are warned, and suspended later.";
};

export function IdleRulePanel() {
  const query = useIdleRule();
  return (
    <Panel title="Idle GPUs" meta="jobs with GPUs that do not use them">
      <Loadable query={query} what="The rule" skeleton={<Skeleton height={52} count={3} />}>{(rule) => <RuleForm key={JSON.stringify(rule)} rule={rule} />}</Loadable>
    </Panel>
  );
}

function RuleForm({ rule }: { rule: IdleRule }) {
  const id = useId();
  const before = formOf(rule);
  const [form, setForm] = useState(before);
  const save = useSetIdleRule();
  const errors = save.error instanceof ApiError ? save.error.errors : [];
  const changed = JSON.stringify(form) !== JSON.stringify(before);
  return (
    <form aria-label="Idle GPUs" noValidate onSubmit={(event) => { event.preventDefault(); save.mutate(ruleOf(form)); }}>
      <div className={css.fields}>
        <div className="f">
          <label className={css.check} htmlFor={`${id}-on`}><input id={`${id}-on`} type="checkbox" checked={form.enabled} onChange={(event) => setForm({ ...form, enabled: event.target.checked })} />Warn idle jobs</label>
          <div className="h">{switchHint(form)}</div>
        </div>
        {FIELDS.map(({ name, label, hint }) => {
          const wrong = errors.find((error) => error.field === name)?.message;
          return (
            <div key={name} className="f">
              <label htmlFor={`${id}-${name}`}>{label}</label>
              <input id={`${id}-${name}`} className="in" inputMode="decimal" aria-invalid={wrong !== undefined} value={form[name]} onChange={(event) => setForm({ ...form, [name]: event.target.value })} />
              <div className={wrong ? "h bad" : "h"}>{wrong ?? hint}</div>
            </div>
          );
        })}
      </div>
      {save.error && errors.length === 0 && <div className="fault" role="alert">{save.error.message}</div>}
      <div className={css.foot}>
        <span className="sub grow">{changed ? "Not saved yet." : "In force, for what is idle already too."}</span>
        <button type="submit" className="btn pri" disabled={!changed || save.isPending}>{save.isPending ? "Saving" : "Save"}</button>
      </div>
    </form>
  );
}
