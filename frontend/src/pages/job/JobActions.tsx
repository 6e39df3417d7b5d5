import { Menu } from "@mantine/core";
import { useState } from "react";
import { useNavigate } from "react-router";
import { useHold, useRelease, useStopRetrying } from "../../api/hooks";
import type { JobDetail, Session } from "../../api/types";
import { Icon } from "../../components/icons";
import { SaveTemplate } from "../../components/SaveTemplate";
import { allowed } from "../../lib/job/jobActions";
import { fileOfJob } from "../../lib/jobfile/templates";
import { CancelDialog } from "./CancelDialog";
import { CompareDialog } from "./CompareDialog";
import { EditDialog } from "./EditDialog";
import { HoldDialog } from "./HoldDialog";
import css from "./job.module.css";

type Dialog = "edit" | "hold" | "cancel" | "compare" | "template" | null;

/** What may be done with the job. What stops its training is asked for once more. */
export function JobActions({ job, session }: { job: JobDetail; session: Session | undefined }) {
  const [dialog, setDialog] = useState<Dialog>(null);
  const navigate = useNavigate();
  const hold = useHold(job.number);
  const release = useRelease(job.number);
  const stop = useStopRetrying(job.number);
  const may = allowed(job, session);
  const close = () => setDialog(null);
  const error = hold.error ?? release.error ?? stop.error;
  return (
    <>
      <div className={css.actions} role="group" aria-label="Actions">
        {may.release && <button type="button" className="btn" disabled={release.isPending} onClick={() => release.mutate(undefined)}><Icon name="resume" size={14} />Release</button>}
        {may.stopRetrying && <button type="button" className="btn" disabled={stop.isPending} onClick={() => stop.mutate(undefined)}><Icon name="cross" size={14} />Stop trying</button>}
        {may.hold && (
          <button type="button" className="btn" disabled={hold.isPending} onClick={() => (job.state === "queued" ? hold.mutate(undefined) : setDialog("hold"))}>
            <Icon name="pause" size={14} />Hold
          </button>
        )}
        {may.edit && <button type="button" className="btn" onClick={() => setDialog("edit")}><Icon name="edit" size={14} />Edit</button>}
        {may.resubmit && <button type="button" className="btn" onClick={() => void navigate(`/submit?from=${job.number}`)}><Icon name="again" size={14} />Resubmit</button>}
        <Menu position="bottom-end">
          <Menu.Target><button type="button" className="btn">More</button></Menu.Target>
          <Menu.Dropdown>
            <Menu.Item onClick={() => setDialog("compare")}>Compare with another</Menu.Item>
            <Menu.Item onClick={() => setDialog("template")}>Save as template</Menu.Item>
          </Menu.Dropdown>
        </Menu>
        {may.cancel && <button type="button" className="btn bad" onClick={() => setDialog("cancel")}><Icon name="cross" size={14} />Cancel job</button>}
      </div>
      {error && <div className="fault" role="alert" style={{ margin: 0 }}>{error.message}</div>}
      <CancelDialog job={job} opened={dialog === "cancel"} onClose={close} />
      <HoldDialog job={job} opened={dialog === "hold"} onClose={close} />
      {dialog === "compare" && <CompareDialog job={job} onClose={close} />}
      {dialog === "template" && <SaveTemplate file={fileOfJob(job)} name={job.name} onClose={close} />}
      {dialog === "edit" && <EditDialog job={job} may={may} onClose={close} />}
    </>
  );
}
