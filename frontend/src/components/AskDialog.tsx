import { Modal } from "@mantine/core";
import type { ReactNode } from "react";

interface Props {
  title: string;
  /** What will happen, before it does. */
  children: ReactNode;
  keep: string;
  action: string;
  error: Error | null;
  busy: boolean;
  /** Nothing is lost by it. */
  mild?: boolean;
  onDo: () => void;
  onClose: () => void;
}

/** Asks once more before something is taken away. */
export function AskDialog({ title, children, keep, action, error, busy, mild = false, onDo, onClose }: Props) {
  return (
    <Modal opened onClose={onClose} title={title} size={420} closeButtonProps={{ "aria-label": "Close" }}>
      <div style={{ display: "grid", gap: 14 }}>
        <p style={{ color: "var(--ink-2)" }}>{children}</p>
        {error && <div className="fault" role="alert" style={{ margin: 0 }}>{error.message}</div>}
        <div style={{ display: "flex", gap: 8, justifyContent: "flex-end", flexWrap: "wrap" }}>
          <button type="button" className="btn" onClick={onClose} data-autofocus>{keep}</button>
          <button type="button" className={mild ? "btn pri" : "btn danger"} disabled={busy} onClick={onDo}>{action}</button>
        </div>
      </div>
    </Modal>
  );
}
