import { Modal } from "@mantine/core";
import { useState, type FormEvent } from "react";
import { useDrain, useDrainPreview } from "../../api/clusterHooks";
import { Loadable, Skeleton } from "../../components/Panel";
import { Text } from "../../components/TextField";
import { count, dateTime, timeZone } from "../../lib/format";
import { localInput } from "../../lib/job/jobActions";
import { consequences, deadlineOf, lostBy, WHEN_WORDS, type Drained, type When } from "./drains";
import { DrainJobs } from "./DrainJobs";

const CHOICES = Object.keys(WHEN_WORDS) as When[];

/** When and why, and what that does to each job, before it is done. */
export function DrainForm({ name, drain: before, onClose }: { name: string; drain?: Drained["drain"] | undefined; onClose: () => void }) {
  const drain = useDrain();
  const [when, setWhen] = useState<When>(before?.deadline_at ? "own" : "now");
  const [own, setOwn] = useState(before?.deadline_at ? localInput(new Date(before.deadline_at)) : "");
  const [deadline, setDeadline] = useState<Date | null | undefined>(before?.deadline_at ? new Date(before.deadline_at) : null);
  const [reason, setReason] = useState(before?.reason ?? "");
  const choose = (next: When, time = own) => {
    setWhen(next);
    setOwn(time);
    setDeadline(deadlineOf(next, time, new Date()));
  };
  const preview = useDrainPreview(name, deadline?.toISOString() ?? null);
  const lost = preview.data && !preview.isPlaceholderData ? lostBy(preview.data.jobs) : 0;
  const submit = (event: FormEvent) => {
    event.preventDefault();
    drain.mutate({ name, wish: { reason: reason.trim(), ...(deadline ? { deadline_at: deadline.toISOString() } : {}) } }, { onSuccess: onClose });
  };
  return (
    <Modal opened onClose={onClose} title={`Drain ${name}`} size={600} closeButtonProps={{ "aria-label": "Close" }}>
      <form onSubmit={submit} style={{ display: "grid", gap: 12 }}>
        <div className="seg" role="group" aria-label="When" style={{ flexWrap: "wrap", justifySelf: "start" }}>
          {CHOICES.map((key) => <button key={key} type="button" aria-pressed={when === key} onClick={() => choose(key)}>{WHEN_WORDS[key]}</button>)}
        </div>
        {when === "own" && (
          <div className="f">
            <label htmlFor="drain-deadline">Deadline, {timeZone(new Date())}</label>
            <input id="drain-deadline" type="datetime-local" className="in" required value={own} onChange={(event) => choose("own", event.target.value)} />
            {own !== "" && deadline === undefined && <span className="h bad" role="alert">Choose a time to come.</span>}
          </div>
        )}
        <p className="sub">
          From now on no job starts or grows on {name}. {deadline ? `Jobs that have not ended by ${dateTime(deadline)} are moved with a checkpoint before that, or queue again.` : "Its jobs move by checkpoint when there is room elsewhere."}
        </p>
        <Text label="Reason, shown to all users" value={reason} onChange={setReason} placeholder="new fans" />
        {deadline !== undefined && (
          <Loadable query={preview} what="What it would do" skeleton={<Skeleton height={26} count={2} />}>
            {({ jobs }) => (
              <div aria-live="polite" style={{ opacity: preview.isPlaceholderData ? 0.6 : 1 }}>
                <p style={{ fontWeight: 500 }}>{consequences(jobs)}</p>
                <DrainJobs jobs={jobs} />
              </div>
            )}
          </Loadable>
        )}
        {drain.error && <div className="fault" role="alert" style={{ margin: 0 }}>{drain.error.message}</div>}
        <div style={{ display: "flex", gap: 8, justifyContent: "flex-end" }}>
          <button type="button" className="btn" onClick={onClose}>Close</button>
          <button type="submit" className={lost > 0 ? "btn danger" : "btn pri"} disabled={drain.isPending || deadline === undefined}>{lost > 0 ? `Drain, and lose ${count(lost, "job")}` : "Drain"}</button>
        </div>
      </form>
    </Modal>
  );
}
