import { useId } from "react";

interface Props {
  label: string;
  value: string;
  onChange: (value: string) => void;
  number?: boolean;
  decimal?: boolean;
  required?: boolean;
  disabled?: boolean;
  placeholder?: string;
  type?: "text" | "email" | "password" | "date" | "datetime-local";
  /** What the portal said of it. */
  error?: string | undefined;
}

/** One line of a form, with its label above it. */
export function Text({ label, value, onChange, number = false, decimal = false, error, ...rest }: Props) {
  const id = useId();
  const pattern = decimal ? "[0-9]+([.][0-9]+)?" : number ? "[0-9]*" : undefined;
  return (
    <div className="f grow" style={{ minWidth: 140 }}>
      <label htmlFor={id}>{label}</label>
      <input id={id} className="in" autoComplete={rest.type === "password" ? "new-password" : undefined} inputMode={decimal ? "decimal" : number ? "numeric" : undefined} pattern={pattern} value={value} onChange={(event) => onChange(event.target.value)} {...wrong(id, error)} {...rest} />
      <Wrong id={id} error={error} />
    </div>
  );
}

const wrong = (id: string, error: string | undefined) => (error ? { "aria-invalid": true, "aria-describedby": `${id}-error` } : {});

function Wrong({ id, error }: { id: string; error: string | undefined }) {
  return error ? <span id={`${id}-error`} className="h bad" role="alert">{error}</span> : null;
}

interface ChoiceProps {
  label: string;
  value: string;
  onChange: (value: string) => void;
  options: [value: string, text: string][];
  disabled?: boolean;
  error?: string | undefined;
}

/** One of a few. */
export function Choice({ label, value, onChange, options, disabled = false, error }: ChoiceProps) {
  const id = useId();
  return (
    <div className="f grow" style={{ minWidth: 140 }}>
      <label htmlFor={id}>{label}</label>
      <select id={id} className="in" value={value} disabled={disabled} onChange={(event) => onChange(event.target.value)} {...wrong(id, error)}>
        {options.map(([key, text]) => <option key={key} value={key}>{text}</option>)}
      </select>
      <Wrong id={id} error={error} />
    </div>
  );
}
