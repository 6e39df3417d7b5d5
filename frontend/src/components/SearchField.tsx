import { useDebouncedCallback } from "@mantine/hooks";
import { useEffect, useState } from "react";

interface Props {
  label: string;
  value: string;
  onChange: (value: string) => void;
}

/** Says what was typed once the typing pauses. */
export function SearchField({ label, value, onChange }: Props) {
  const [typed, setTyped] = useState(value);
  const say = useDebouncedCallback((text: string) => onChange(text.trim()), 250);
  useEffect(() => setTyped((now) => (now.trim() === value ? now : value)), [value]);
  const type = (text: string) => {
    setTyped(text);
    say(text);
  };
  return <input className="in" style={{ height: 28, width: 190, fontSize: 12 }} type="search" placeholder={label} aria-label={label} value={typed} onChange={(event) => type(event.target.value)} />;
}
