import { useExtend, useSession } from "../../api/hooks";
import type { Job, JobDetail } from "../../api/types";
import { allowed } from "../../lib/job/jobActions";
import { count, duration, moment, relative } from "../../lib/format";

/** What is wrong, what follows and when, and the way to put it off. */
export function IdleNote({ job, idle, now }: { job: JobDetail; idle: NonNullable<Job["idle"]>; now: Date }) {
  const session = useSession().data;
  const extend = useExtend(job.number);
  const release = idle.release_at ? new Date(idle.release_at) : null;
  const since = duration((now.getTime() - Date.parse(idle.since_at)) / 1000);
  const mayExtend = release !== null && idle.extensions_left > 0 && allowed(job, session).edit;
  return (
    <div role="status" aria-label="Idle" style={{ display: "flex", gap: 8, alignItems: "center", flexWrap: "wrap", padding: "6px 10px", borderRadius: 6, background: "var(--warn-soft)", color: "var(--warn)", fontSize: 12, lineHeight: "18px" }}>
      <span className="grow" style={{ minWidth: 220 }} title={idle.text}>
        <b>{idle.kind === "no_step" ? `No step for ${since}` : `GPUs next to unused for ${since}`}</b>
        {release === null ? ". It is not suspended for this: cancel it or put it on hold if it is stuck." : `. It is suspended with a checkpoint ${relative(release, now)} (${moment(release, now)}) unless it uses its GPUs again.`}
        {idle.extended_until_at && idle.extended_until_at !== idle.release_at && ` It was given time until ${moment(new Date(idle.extended_until_at), now)}.`}
        {extend.error && ` ${extend.error.message}`}
      </span>
      {mayExtend && <button type="button" className="btn sm" disabled={extend.isPending} onClick={() => extend.mutate()} title={`${count(idle.extensions_left, "extension")} left`}>Keep the GPUs</button>}
    </div>
  );
}
