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
}

/** One line of a form, with its label above it. */
export function Text({ label, value, onChange, number = false, decimal = false, ...rest }: Props) {
  const id = useId();
  const pattern = decimal ? "[0-9]+([.][0-9]+)?" : number ? "[0-9]*" : undefined;
  return (
    <div className="f grow" style={{ minWidth: 140 }}>
      <label htmlFor={id}>{label}</label>
      <input id={id} className="in" inputMode={decimal ? "decimal" : number ? "numeric" : undefined} pattern={pattern} value={value} onChange={(event) => onChange(event.target.value)} {...rest} />
    </div>
  );
}

interface ChoiceProps {
  label: string;
  value: string;
  onChange: (value: string) => void;
  options: [value: string, text: string][];
  disabled?: boolean;
}

/** One of a few. */
export function Choice({ label, value, onChange, options, disabled = false }: ChoiceProps) {
  const id = useId();
  return (
    <div className="f grow" style={{ minWidth: 140 }}>
      <label htmlFor={id}>{label}</label>
      <select id={id} className="in" value={value} disabled={disabled} onChange={(event) => onChange(event.target.value)}>
        {options.map(([key, text]) => <option key={key} value={key}>{text}</option>)}
      </select>
    </div>
  );
}
