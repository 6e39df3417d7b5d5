import { Modal } from "@mantine/core";
import { useCancel } from "../../api/hooks";
import type { JobDetail } from "../../api/types";
import { lossWords } from "../../lib/job/jobView";
import { isolated } from "../../lib/isolated";

export function CancelDialog({ job, opened, onClose }: { job: JobDetail; opened: boolean; onClose: () => void }) {
  const cancel = useCancel(job.number);
  return (
    <Modal opened={opened} onClose={onClose} title={`Cancel ${job.number} ${isolated(job.name)}?`} size={420} closeButtonProps={{ "aria-label": "Close" }}>
      <div style={{ display: "grid", gap: 14 }}>
        <p style={{ color: "var(--ink-2)" }}>{lossWords(job, job.checkpoints)} A cancelled job does not start again. Its program is asked to end and has 10 s to save what it has.</p>
        {cancel.error && <div className="fault" role="alert" style={{ margin: 0 }}>{cancel.error.message}</div>}
        <div style={{ display: "flex", gap: 8, justifyContent: "flex-end" }}>
          <button type="button" className="btn" onClick={onClose} data-autofocus>Keep the job</button>
          <button type="button" className="btn danger" disabled={cancel.isPending} onClick={() => cancel.mutate(undefined, { onSuccess: onClose })}>
            {cancel.isPending ? "Cancelling" : "Cancel the job"}
          </button>
        </div>
      </div>
    </Modal>
  );
}
