import type { Job, JobDetail, Session } from "../../api/types";
import { parsePairs, showPairs, type JobFile } from "../jobfile/jobFile";
import { hasEnded } from "./jobState";

/** As many jobs stand side by side. */
export const MOST_COMPARED = 4;

/** What the signed-in person is shown to do with a job; the portal has the last word. */
export interface Allowed {
  edit: boolean;
  hold: boolean;
  release: boolean;
  resubmit: boolean;
  cancel: boolean;
  stopRetrying: boolean;
  priority: boolean;
}

export function allowed(job: Job, session: Session | undefined): Allowed {
  const admin = session?.user?.is_admin ?? false;
  const role = session?.projects.find((project) => project.key === job.project.key)?.role;
  const writes = admin || role === "member" || role === "manager";
  const live = writes && !hasEnded(job.state);
  return {
    edit: writes,
    hold: live && !job.hold,
    release: live && job.hold !== null && job.hold !== undefined && (admin || job.hold.kind !== "admin") && job.hold.kind !== "cost",
    resubmit: writes,
    cancel: live && job.can_cancel,
    stopRetrying: live && job.retry != null,
    priority: admin,
  };
}

export interface EditForm {
  name: string;
  labels: string;
  total_steps: string;
  nice: string;
  priority: string;
  max_cost: string;
  max_duration: string;
  deadline: string;
}

/** The job as the form shows it. Times are the browser's own. */
export function formOf(job: JobDetail): EditForm {
  const given = job.spec.priority;
  return {
    name: job.name,
    labels: showPairs(job.labels, ", "),
    total_steps: String(job.total_steps),
    nice: String(job.nice),
    priority: String(typeof given === "number" ? given : 0),
    max_cost: job.max_cost ?? "",
    max_duration: job.max_duration_s == null ? "" : String(job.max_duration_s),
    deadline: job.deadline_at ? localInput(new Date(job.deadline_at)) : "",
  };
}

export function localInput(at: Date): string {
  return new Date(at.getTime() - at.getTimezoneOffset() * 60_000).toISOString().slice(0, 16);
}

const asNumber = (text: string) => (text.trim() === "" || Number.isNaN(Number(text)) ? text : Number(text));
const orNone = (text: string) => (text.trim() === "" ? null : text.trim());

/** The PATCH that makes `before` into `after`: only what was changed. */
export function patchOf(before: EditForm, after: EditForm): JobFile {
  const patch: JobFile = {};
  for (const key of ["total_steps", "nice", "priority"] as const) if (after[key] !== before[key]) patch[key] = asNumber(after[key]);
  if (after.name !== before.name) patch.name = after.name;
  if (after.max_cost !== before.max_cost) patch.max_cost = orNone(after.max_cost);
  if (after.max_duration !== before.max_duration) patch.max_duration = typeof asNumber(after.max_duration) === "number" ? asNumber(after.max_duration) : orNone(after.max_duration);
  if (after.deadline !== before.deadline) patch.deadline = after.deadline === "" ? null : new Date(after.deadline).toISOString();
  const labels = diff(parsePairs(before.labels, /,/), parsePairs(after.labels, /,/));
  if (Object.keys(labels).length > 0) patch.labels = labels;
  return patch;
}

const isObject = (value: unknown): value is JobFile => typeof value === "object" && value !== null && !Array.isArray(value);

/** The merge patch (RFC 7386) that turns one job file into another. */
export function diff(before: JobFile, after: JobFile): JobFile {
  const patch: JobFile = {};
  for (const key of Object.keys(before)) if (!(key in after)) patch[key] = null;
  for (const [key, value] of Object.entries(after)) {
    const old = before[key];
    if (JSON.stringify(old) === JSON.stringify(value)) continue;
    patch[key] = isObject(old) && isObject(value) && key !== "resume_from" ? diff(old, value) : value;
  }
  return patch;
}
