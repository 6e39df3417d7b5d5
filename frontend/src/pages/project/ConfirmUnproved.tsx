import { useId } from "react";
import { sentenceOf } from "../../lib/isolated";

interface Props {
  /** Where the account comes from; null: there is nothing to confirm. */
  sentence: string | undefined;
  checked: boolean;
  onChange: (checked: boolean) => void;
}

/** Asks before an account is trusted for an address that was never proved: it may be somebody else's. */
export function ConfirmUnproved({ sentence, checked, onChange }: Props) {
  const id = useId();
  if (sentence === undefined) return null;
  return (
    <div className="fault warn" role="alert" style={{ margin: 0, flexBasis: "100%", display: "grid", gap: 8 }}>
      <span>{sentenceOf(sentence)} Somebody else may have made it.</span>
      <label htmlFor={id} style={{ display: "flex", gap: 8, alignItems: "center" }}>
        <input id={id} type="checkbox" checked={checked} onChange={(event) => onChange(event.target.checked)} />
        I asked them: the account is theirs
      </label>
    </div>
  );
}
