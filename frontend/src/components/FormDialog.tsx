import { Modal } from "@mantine/core";
import type { FormEvent, ReactNode } from "react";

interface Props {
  title: string;
  action?: string;
  /** What no field shows. */
  fault: string | null;
  busy: boolean;
  onSubmit: () => void;
  onClose: () => void;
  children: ReactNode;
}

/** A few fields over the page, and what was wrong with them. */
export function FormDialog({ title, action = "Save", fault, busy, onSubmit, onClose, children }: Props) {
  const submit = (event: FormEvent) => {
    event.preventDefault();
    onSubmit();
  };
  return (
    <Modal opened onClose={onClose} title={title} size={560} closeButtonProps={{ "aria-label": "Close" }}>
      <form onSubmit={submit} style={{ display: "flex", gap: 12, flexWrap: "wrap", alignItems: "flex-start" }}>
        {children}
        {fault && <div className="fault" role="alert" style={{ margin: 0, flexBasis: "100%" }}>{fault}</div>}
        <div style={{ display: "flex", gap: 8, justifyContent: "flex-end", flexBasis: "100%" }}>
          <button type="button" className="btn" onClick={onClose}>Close</button>
          <button type="submit" className="btn pri" disabled={busy}>{action}</button>
        </div>
      </form>
    </Modal>
  );
}
