import { Modal } from "@mantine/core";
import { useRemoveDestination } from "../../api/noticeHooks";
import type { Destination } from "../../api/types";
import { isolated } from "../../lib/isolated";

export function RemoveDialog({ row, onClose }: { row: Destination | null; onClose: () => void }) {
  const remove = useRemoveDestination();
  return (
    <Modal opened={row !== null} onClose={onClose} title={`Remove ${isolated(row?.name ?? "")}?`} size={400} closeButtonProps={{ "aria-label": "Close" }}>
      <div style={{ display: "grid", gap: 14 }}>
        <p style={{ color: "var(--ink-2)" }}>Its log is deleted too, and pending notices are not sent. This cannot be undone.</p>
        {remove.error && <div className="fault" role="alert" style={{ margin: 0 }}>{remove.error.message}</div>}
        <div style={{ display: "flex", gap: 8, justifyContent: "flex-end" }}>
          <button type="button" className="btn" onClick={onClose} data-autofocus>Keep it</button>
          <button type="button" className="btn danger" disabled={remove.isPending} onClick={() => row && remove.mutate(row.id, { onSuccess: onClose })}>Remove the destination</button>
        </div>
      </div>
    </Modal>
  );
}
