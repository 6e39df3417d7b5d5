import { Text } from "../../components/TextField";

/** When it begins: by default now. */
export function Start({ value, onChange, error }: { value: string; onChange: (value: string) => void; error: string | undefined }) {
  return (
    <>
      <Text label="From (empty: now)" type="datetime-local" value={value} onChange={onChange} error={error} />
      <p className="sub" style={{ flexBasis: "100%" }}>The price in force ends then, and later ones are withdrawn. Occupancy until then is billed at the price in force.</p>
    </>
  );
}
