import { sentenceOf } from "../lib/isolated";
/** Beside an account whose address was never proved, with where it comes from for those who may read it. */
export function UnprovedMark({ provenance }: { provenance: string | null }) {
  return <span className="chip warn" style={{ marginLeft: 6 }} title={sentenceOf(provenance ?? "No message and no identity provider proved that the address is theirs.")}>unproved address</span>;
}
