import { Modal } from "@mantine/core";
import { useHold } from "../../api/hooks";
import type { JobDetail } from "../../api/types";
import { isolated } from "../../lib/isolated";

export function HoldDialog({ job, opened, onClose }: { job: JobDetail; opened: boolean; onClose: () => void }) {
  const hold = useHold(job.number);
  return (
    <Modal opened={opened} onClose={onClose} title={`Hold ${job.number} ${isolated(job.name)}?`} size={420} closeButtonProps={{ "aria-label": "Close" }}>
      <div style={{ display: "grid", gap: 14 }}>
        <p style={{ color: "var(--ink-2)" }}>The job writes a checkpoint, frees its GPUs and waits until it is released. Then it queues again and resumes from that checkpoint.</p>
        {hold.error && <div className="fault" role="alert" style={{ margin: 0 }}>{hold.error.message}</div>}
        <div style={{ display: "flex", gap: 8, justifyContent: "flex-end" }}>
          <button type="button" className="btn" onClick={onClose} data-autofocus>Let it run</button>
          <button type="button" className="btn pri" disabled={hold.isPending} onClick={() => hold.mutate(undefined, { onSuccess: onClose })}>{hold.isPending ? "Holding" : "Hold the job"}</button>
        </div>
      </div>
    </Modal>
  );
}
