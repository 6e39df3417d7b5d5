import { useState, type ReactNode } from "react";
import { Icon } from "./icons";

interface Props {
  label: string;
  /** What it is, in words. */
  children: ReactNode;
  secret: string;
  onDone: () => void;
}

/** A token or a link that nobody can be shown again. */
export function OnceShown({ label, children, secret, onDone }: Props) {
  const [copied, setCopied] = useState(false);
  return (
    <section className="panel" aria-label={label} style={{ borderColor: "var(--accent)" }}>
      <div className="pb" style={{ paddingTop: 12, display: "grid", gap: 8, gridTemplateColumns: "minmax(0, 1fr)" }}>
        <p role="status">{children} Copy it now: it is not shown again.</p>
        <div style={{ display: "flex", gap: 8, alignItems: "center", flexWrap: "wrap" }}>
          <code style={{ background: "var(--sunken)", padding: "5px 10px", borderRadius: 6, fontSize: 12, overflowWrap: "anywhere" }}>{secret}</code>
          <button type="button" className="btn" onClick={() => void navigator.clipboard?.writeText(secret).then(() => setCopied(true))}><Icon name={copied ? "check" : "copy"} size={14} />{copied ? "Copied" : "Copy"}</button>
          <button type="button" className="btn plain" onClick={onDone}>Done</button>
        </div>
      </div>
    </section>
  );
}
