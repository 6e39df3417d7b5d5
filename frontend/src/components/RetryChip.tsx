import type { Job } from "../api/types";
import { duration } from "../lib/format";
import { retryLeft, retrySentence } from "../lib/job/jobView";

/** Beside the state of a job that waits to be tried again. */
export function RetryChip({ job, now }: { job: Job; now: Date }) {
  const left = job.retry ? retryLeft(job.retry, now) : null;
  if (!job.retry || left === null) return null;
  return <span className="chip warn" title={retrySentence(job.retry, now) ?? undefined}>again in {duration(left)}</span>;
}
