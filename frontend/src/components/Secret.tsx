import { useState } from "react";
import { Icon } from "./icons";

/** A value that is shown once, to be copied now. */
export function Secret({ label, name, value, said, onDone }: { label: string; name: string; value: string; said: string; onDone: () => void }) {
  const [copied, setCopied] = useState(false);
  return (
    <section className="panel" aria-label={label} style={{ borderColor: "var(--accent)" }}>
      <div className="pb" style={{ paddingTop: 12, display: "grid", gap: 8 }}>
        <p><b style={{ fontWeight: 600 }}>{name}</b> {said}</p>
        <div style={{ display: "flex", gap: 8, alignItems: "center", flexWrap: "wrap" }}>
          <code style={{ background: "var(--sunken)", padding: "5px 10px", borderRadius: 6, fontSize: 12, overflowWrap: "anywhere" }}>{value}</code>
          <button type="button" className="btn" onClick={() => void navigator.clipboard?.writeText(value).then(() => setCopied(true))}><Icon name={copied ? "check" : "copy"} size={14} />{copied ? "Copied" : "Copy"}</button>
          <button type="button" className="btn plain" onClick={onDone}>Done</button>
        </div>
      </div>
    </section>
  );
}
