import { useId, useState, type ReactNode } from "react";
import type { Draft } from "./useDraft";

export interface FieldError {
  field: string;
  message: string;
}

export function errorAt(errors: FieldError[], path: string): string | undefined {
  return errors.find((error) => error.field === path || error.field.startsWith(`${path}.`))?.message;
}

interface FieldProps {
  label: string;
  path: string;
  errors: FieldError[];
  hint?: ReactNode;
  children: (props: { id: string; "aria-invalid": boolean; "aria-describedby": string | undefined }) => ReactNode;
}

export function Field({ label, path, errors, hint, children }: FieldProps) {
  const id = useId();
  const error = errorAt(errors, path);
  return (
    <div className="f">
      <label htmlFor={id}>{label}</label>
      {children({ id, "aria-invalid": error !== undefined, "aria-describedby": error || hint ? `${id}-hint` : undefined })}
      {error ? <div className="h bad" id={`${id}-hint`}>{error}</div> : hint ? <div className="h" id={`${id}-hint`}>{hint}</div> : null}
    </div>
  );
}

interface InputProps {
  draft: Draft;
  errors: FieldError[];
  label: string;
  path: string;
  hint?: ReactNode;
  unit?: string;
  placeholder?: string;
}

interface TextProps extends InputProps {
  read?: (typed: string) => unknown;
}

export function TextField({ draft, errors, label, path, hint, placeholder, read = (typed) => typed }: TextProps) {
  const value = draft.get(path);
  return (
    <Field label={label} path={path} errors={errors} hint={hint}>
      {(props) => <input {...props} name={path} className="in" placeholder={placeholder} value={value === undefined ? "" : String(value)} onChange={(event) => draft.set(path, read(event.target.value))} />}
    </Field>
  );
}

/** A number with its unit. Digits may be grouped; what is no number is kept as typed, so the portal can name it. */
export function NumberField({ draft, errors, label, path, hint, unit, placeholder }: InputProps) {
  const [text, setText] = useState<string | null>(null);
  const value = draft.get(path);
  const shown = text ?? (typeof value === "number" ? value.toLocaleString("en-US", { maximumFractionDigits: 6 }) : value === undefined ? "" : String(value));
  const onChange = (typed: string) => {
    setText(typed);
    const plain = typed.replace(/[,\s]/g, "");
    const parsed = Number(plain);
    draft.set(path, plain === "" ? undefined : Number.isNaN(parsed) ? typed : parsed);
  };
  return (
    <Field label={label} path={path} errors={errors} hint={hint}>
      {(props) => (
        <span className={unit ? "inw pad" : "inw"}>
          <input {...props} name={path} className="in" inputMode="decimal" placeholder={placeholder} value={shown} onChange={(event) => onChange(event.target.value)} onBlur={() => setText(null)} />
          {unit && <span className="u">{unit}</span>}
        </span>
      )}
    </Field>
  );
}
