import type { BulkAction, Job, Session } from "../../api/types";
import { allowed } from "../../lib/job/jobActions";
import { count, integer, money } from "../../lib/format";
import { parsePairs } from "../../lib/jobfile/jobFile";
import { hasEnded } from "../../lib/job/jobState";

/** The most that one request changes. */
export const MOST_AT_ONCE = 1000;

export const BULK_WORDS: Record<BulkAction, { verb: string; done: string; doing: string }> = {
  cancel: { verb: "Cancel", done: "cancelled", doing: "Cancelling" },
  hold: { verb: "Hold", done: "put on hold", doing: "Putting on hold" },
  release: { verb: "Release", done: "released", doing: "Releasing" },
  resubmit: { verb: "Resubmit", done: "resubmitted", doing: "Resubmitting" },
  label: { verb: "Label", done: "labelled", doing: "Labelling" },
};

export interface Outlook {
  can: Job[];
  cannot: { job: Job; why: Why }[];
}

/** Of one job and of several. */
type Why = readonly [string, string];
const ENDED: Why = ["has ended", "have ended"];
const LOOK_ONLY: Why = ["is in a project where you may only look", "are in projects where you may only look"];

function whyNot(action: BulkAction, job: Job, session: Session | undefined): Why | null {
  const may = allowed(job, session);
  if (!may.edit) return LOOK_ONLY;
  if (action === "label" || action === "resubmit") return null;
  if (hasEnded(job.state)) return ENDED;
  if (action === "hold") {
    if (job.hold) return ["is on hold already", "are on hold already"];
    const others = (session?.user?.is_admin ?? false) && job.owner?.email !== session?.user?.email;
    const rigid = !job.restartable && job.state !== "queued" && !others;
    return rigid ? ["would start from the beginning: set restartable to true where it finds its files again", "would start from the beginning: set restartable to true where they find their files again"] : null;
  }
  if (action === "release" && !may.release) {
    if (!job.hold) return ["is not on hold", "are not on hold"];
    return job.hold.kind === "cost" ? ["is suspended at its max_cost: raise that", "are suspended at their max_cost: raise that"] : ["was put on hold by an administrator", "were put on hold by administrators"];
  }
  return null;
}

/** What an act would do to each; the portal has the last word. */
export function outlook(action: BulkAction, jobs: Job[], session: Session | undefined): Outlook {
  const found: Outlook = { can: [], cannot: [] };
  for (const job of jobs) {
    const why = whyNot(action, job, session);
    if (why) found.cannot.push({ job, why });
    else found.can.push(job);
  }
  return found;
}

const SHOWN = 3;

function numbers(jobs: Job[]): string {
  const shown = jobs.slice(0, jobs.length > SHOWN + 1 ? SHOWN : jobs.length).map((job) => `#${job.number}`);
  const more = jobs.length - shown.length;
  if (more > 0) return `${shown.join(", ")} and ${integer(more)} more`;
  return shown.length < 2 ? (shown[0] ?? "") : `${shown.slice(0, -1).join(", ")} and ${shown.at(-1)}`;
}

/** "4 of 5 can be cancelled; #12 has ended." */
export function outlookWords(action: BulkAction, { can, cannot }: Outlook): string {
  const { done } = BULK_WORDS[action];
  const all = can.length + cannot.length;
  const head = cannot.length === 0 ? (all === 1 ? `#${can[0]?.number} can be ${done}` : `All ${integer(all)} can be ${done}`) : can.length === 0 ? `None can be ${done}` : `${integer(can.length)} of ${integer(all)} can be ${done}`;
  const reasons = new Map<string, { jobs: Job[]; why: Why }>();
  for (const { job, why } of cannot) {
    const known = reasons.get(why[0]) ?? { jobs: [], why };
    known.jobs.push(job);
    reasons.set(why[0], known);
  }
  const said = [...reasons.values()].map(({ jobs, why }) => `${numbers(jobs)} ${jobs.length === 1 ? why[0] : why[1]}`);
  return `${[head, ...said].join("; ")}.`;
}

/** What is lost, or begins, by it. */
export function consequence(action: BulkAction, jobs: Job[]): string {
  const running = jobs.filter((job) => job.state !== "queued" && !hasEnded(job.state));
  if (action === "cancel") return cancelled(jobs);
  if (action === "hold") return running.length === 0 ? "They wait until they are released." : `${count(running.length, "job")} ${running.length === 1 ? "writes a checkpoint, gives back its GPUs and waits" : "write a checkpoint, give back their GPUs and wait"} until released.`;
  if (action === "release") return "They queue again; their waiting counts from now.";
  if (action === "resubmit") return "Each becomes a new job with the same job file, from step 0.";
  return "";
}

function cancelled(jobs: Job[]): string {
  const trained = jobs.filter((job) => job.step > 0);
  const again = "A cancelled job does not start again.";
  if (trained.length === 0) return `None has made a step yet, so no work is lost. ${again}`;
  const spent = trained.reduce((sum, job) => sum + Number(job.cost.so_far), 0);
  const lost = trained.length === 1 ? "1 has trained: what it did since its last checkpoint is lost unless it can still write one." : `${integer(trained.length)} have trained: what they did since their last checkpoints is lost unless they can still write one.`;
  return `${lost} ${money(spent, trained[0]?.cost.currency ?? "USD")} has been spent. ${again}`;
}

/** What is sent to add "sweep=7, stage=nightly" and to remove keys; a key that is in both is added. */
export function labelPatch(add: string, remove: string[]): Record<string, string | null> {
  return { ...Object.fromEntries(remove.map((key) => [key, null])), ...parsePairs(add, /,/) };
}
