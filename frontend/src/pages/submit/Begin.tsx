import { useEffect, useState } from "react";
import { useSearchParams } from "react-router";
import type { JobDetail } from "../../api/types";
import { integer } from "../../lib/format";
import type { Draft } from "./useDraft";

/** Where a repeated job begins: at step 0, or at one of the checkpoints of the job that it repeats. */
export function Begin({ job, draft, error }: { job: JobDetail; draft: Draft; error: string | undefined }) {
  const given = draft.get("resume_from");
  const { job: of, step } = (typeof given === "object" && given !== null ? given : {}) as { job?: unknown; step?: unknown };
  const value = given === undefined ? "" : String(of) === String(job.number) ? String(step ?? "latest") : "given";
  const steps = [...new Set(job.checkpoints.map((checkpoint) => checkpoint.step))].sort((a, b) => b - a);
  const choose = (chosen: string) => {
    if (chosen === "given") return;
    draft.set("resume_from", chosen === "" ? undefined : chosen === "latest" ? { job: job.number } : { job: job.number, step: Number(chosen) });
  };
  const asked = useSearchParams()[0].get("step");
  const [taken, setTaken] = useState(false);
  useEffect(() => {
    if (taken) return;
    setTaken(true);
    if (asked !== null && steps.includes(Number(asked))) draft.set("resume_from", { job: job.number, step: Number(asked) });
  }, [taken, asked, steps, draft, job.number]);
  return (
    <div className="pb" style={{ paddingTop: 12 }}>
      <div className="f">
        <label htmlFor="begin">Begin at</label>
        <select id="begin" className="in" value={value} aria-invalid={error !== undefined} aria-describedby="begin-hint" onChange={(event) => choose(event.target.value)}>
          <option value="">step 0</option>
          {value === "given" && <option value="given">the checkpoint of job {String(of)} that it began at</option>}
          {steps.length > 0 && <option value="latest">the newest checkpoint of job {job.number}</option>}
          {steps.map((entry) => <option key={entry} value={entry}>step {integer(entry)} of job {job.number}</option>)}
        </select>
        <div className={error ? "h bad" : "h"} id="begin-hint">{error ?? `A new job with the file of ${job.number}; change below what is to be different.`}</div>
      </div>
    </div>
  );
}
