import type { Destination, NoticeDelivery, NoticeKind } from "../../api/types";
import { count, duration, relative } from "../../lib/format";
import type { Part } from "../../lib/sentence/sentence";

/** In the order in which the form offers them; a forgotten one fails to compile. */
export const NOTICE_KINDS: Record<NoticeKind, string> = {
  "job.started": "a job starts",
  "job.succeeded": "it succeeds",
  "job.failed": "it fails",
  "job.cancelled": "it is cancelled",
  "job.retried": "it fails and is tried again",
  "job.preempted": "it gives up GPUs",
  "job.held": "it is put on hold or suspended",
  "job.idle": "its GPUs are idle",
  "job.waiting": "it waits for long",
  "budget.reached": "80 % or 100 % of a budget are used",
  "node.lost": "a node is lost",
  "node.check_failed": "a node fails its check",
  "policy.rolled_back": "a promoted policy is rolled back",
};

export const USUAL_KINDS: NoticeKind[] = ["job.succeeded", "job.failed", "job.held", "job.idle"];

const OF_ADMINISTRATORS: NoticeKind[] = ["node.lost", "node.check_failed", "policy.rolled_back"];

/** What the reader may be told of. */
export function offeredKinds(isAdmin: boolean): NoticeKind[] {
  return (Object.keys(NOTICE_KINDS) as NoticeKind[]).filter((kind) => isAdmin || !OF_ADMINISTRATORS.includes(kind));
}

export interface Health {
  word: string;
  chip: string;
  why: string;
}

export function healthOf(row: Destination, now: Date): Health {
  if (!row.enabled) return { word: "off", chip: row.disabled_why ? "chip bad" : "chip", why: row.disabled_why };
  if (row.failing_since) return { word: "failing", chip: "chip warn", why: `since ${duration((now.getTime() - Date.parse(row.failing_since)) / 1000)}, ${count(row.failures, "attempt")}` };
  if (row.delivered_at) return { word: "working", chip: "chip good", why: `last ${relative(new Date(row.delivered_at), now)}` };
  return { word: "not used yet", chip: "chip", why: "" };
}

/** The opening sentence: first what does not work. */
export function noticeSentence(rows: Destination[], email: boolean): Part[] {
  const stopped = rows.filter((row) => !row.enabled && row.disabled_why !== "");
  const failing = rows.filter((row) => row.enabled && row.failing_since !== null);
  const on = rows.filter((row) => row.enabled);
  if (stopped.length > 0) return [{ text: `${named(stopped)} ${stopped.length === 1 ? "was" : "were"} turned off`, strong: true }, { text: ", because nothing got through. Test, then turn on again." }];
  if (failing.length > 0) return [{ text: `${named(failing)} ${failing.length === 1 ? "does" : "do"} not answer`, strong: true }, { text: ". What is to be sent is tried again for about a day." }];
  if (on.length > 0) return [{ text: `You get notices in ${count(on.length, "place")}`, strong: true }, { text: ` of what happens to your jobs: ${named(on)}.` }];
  return [{ text: "You get no notices yet", strong: true }, { text: `. Add ${email ? "a webhook, a chat or your e-mail address" : "a webhook or a chat"}, and choose what you want to know.${email ? "" : " Mail would need a server that an administrator sets up."}` }];
}

const named = (rows: Destination[]) => rows.slice(0, 3).map((row) => row.name).join(", ") + (rows.length > 3 ? ` and ${rows.length - 3} more` : "");

/** Whose jobs it tells of. */
export function scopeOf(row: Destination): string {
  if (!row.own_jobs) return `all jobs of ${row.project ?? ""}`;
  return row.project === null ? "your jobs" : `your jobs in ${row.project}`;
}

const STATUS: Record<NoticeDelivery["status"], { word: string; chip: string }> = {
  waiting: { word: "waits", chip: "chip" },
  delivered: { word: "delivered", chip: "chip good" },
  given_up: { word: "given up", chip: "chip bad" },
};

export function statusOf(row: NoticeDelivery): { word: string; chip: string } {
  return row.status === "waiting" && row.attempts > 0 ? { word: "to be tried again", chip: "chip warn" } : STATUS[row.status];
}

/** What a test brought, in a sentence. */
export function testResult(row: NoticeDelivery): string {
  const said = row.answer ? ` It said: ${row.answer}` : "";
  if (row.status === "delivered") return row.answer_code === null ? "The mail server took it: look into your mailbox." : `It answered ${row.answer_code}.${said}`;
  return `${row.error}${said}`;
}
