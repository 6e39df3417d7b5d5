import { useState } from "react";
import { useNavigate } from "react-router";
import type { BulkAction, Job, Session } from "../../api/types";
import { Icon } from "../../components/icons";
import { count } from "../../lib/format";
import { MOST_COMPARED } from "../../lib/job/jobActions";
import { BulkDialog } from "./BulkDialog";
import css from "./jobs.module.css";

/** What can be done with the jobs that are selected; what happens is said and asked before. */
export function BulkBar({ jobs, session, onClear }: { jobs: Job[]; session: Session | undefined; onClear: () => void }) {
  const [asked, setAsked] = useState<{ action: BulkAction; jobs: Job[] } | null>(null);
  const navigate = useNavigate();
  const ask = (action: BulkAction) => setAsked({ action, jobs });
  const few = jobs.length >= 2 && jobs.length <= MOST_COMPARED;
  const compare = () => void navigate(`/jobs/compare?jobs=${jobs.map((job) => job.number).sort((a, b) => a - b).join(",")}`);
  return (
    <>
      {jobs.length > 0 && (
        <div className={css.bar} role="region" aria-label="Selected jobs">
          <b role="status">{count(jobs.length, "job")} selected</b>
          <button type="button" className="btn sm" onClick={() => ask("hold")}><Icon name="pause" size={14} />Hold</button>
          <button type="button" className="btn sm" onClick={() => ask("release")}><Icon name="resume" size={14} />Release</button>
          <button type="button" className="btn sm" onClick={() => ask("label")}><Icon name="flag" size={14} />Label</button>
          <button type="button" className="btn sm" onClick={() => ask("resubmit")}><Icon name="again" size={14} />Resubmit</button>
          <button type="button" className="btn sm" disabled={!few} title={few ? undefined : `Select 2 to ${MOST_COMPARED} jobs`} onClick={compare}><Icon name="chart" size={14} />Compare</button>
          <button type="button" className="btn sm bad" onClick={() => ask("cancel")}><Icon name="cross" size={14} />Cancel</button>
          <button type="button" className={`btn sm plain ${css.end}`} onClick={onClear}>Select none</button>
        </div>
      )}
      {asked && <BulkDialog {...asked} session={session} onClose={() => setAsked(null)} />}
    </>
  );
}
