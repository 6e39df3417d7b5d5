import { Text } from "../../components/TextField";

/** When it begins: by default now. */
export function Start({ value, onChange, error }: { value: string; onChange: (value: string) => void; error: string | undefined }) {
  return (
    <>
      <Text label="From (empty: now)" type="datetime-local" value={value} onChange={onChange} error={error} />
      <p className="sub" style={{ flexBasis: "100%" }}>The one in force ends then, and any that would have begun later is withdrawn. What was held until then is billed as it was.</p>
    </>
  );
}
