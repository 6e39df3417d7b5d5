import { integer } from "../lib/format";

/** How much of a limit is used, as a bar with the number beside it. */
export function UsedBar({ percent, bad }: { percent: number; bad: boolean }) {
  return (
    <span style={{ display: "grid", gridTemplateColumns: "minmax(40px, 1fr) 44px", gap: 8, alignItems: "center", flex: 1 }}>
      <span className="bar" aria-hidden><i style={{ width: `${Math.min(100, percent)}%`, ...(bad ? { background: "var(--bad)" } : {}) }} /></span>
      <span className="ra">{integer(percent)} %</span>
    </span>
  );
}
