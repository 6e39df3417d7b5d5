import { useId, useState } from "react";
import { parse, show, type SchemaField } from "../lib/schemaForm";

interface FieldProps {
  field: SchemaField;
  value: unknown;
  error: string | undefined;
  onChange: (value: unknown) => void;
}

/** One parameter of a policy, as its schema describes it. */
export function ParameterField({ field, value, error, onChange }: FieldProps) {
  const id = useId();
  const [text, setText] = useState<string | null>(null);
  const shown = text ?? show(value);
  const said = error ?? field.hint;
  const note = said ? <div className={error ? "h bad" : "h"} id={`${id}-hint`}>{said}</div> : null;
  const tied = { id, "aria-invalid": error !== undefined, "aria-describedby": said ? `${id}-hint` : undefined };
  const type = (typed: string) => {
    setText(typed);
    onChange(parse(field, typed));
  };
  if (field.kind === "boolean") {
    return (
      <div className="f">
        <label style={{ display: "flex", gap: 8, alignItems: "center", fontWeight: 500, fontSize: 12 }} htmlFor={id}><input {...tied} type="checkbox" checked={value === true} onChange={(event) => onChange(event.target.checked)} />{field.label}</label>
        {note}
      </div>
    );
  }
  return (
    <div className="f">
      <label htmlFor={id}>{field.label}</label>
      {field.kind === "choice" ? (
        <select {...tied} className="in" value={show(value)} onChange={(event) => onChange(parse(field, event.target.value))}>
          {field.nullable && <option value="">none</option>}
          {field.choices.map((choice) => <option key={choice} value={choice}>{choice}</option>)}
        </select>
      ) : (
        <input {...tied} className="in" inputMode={field.kind === "number" || field.kind === "integer" ? "decimal" : "text"} value={shown} onChange={(event) => type(event.target.value)} onBlur={() => setText(null)} />
      )}
      {note}
    </div>
  );
}
