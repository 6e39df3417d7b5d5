import { capital, clock, count, inWords, moment, variance as spread } from "../format";
import type { ClusterState } from "../live/blanks";
import type { JobView } from "../live/liveContext";
import { gpusOutOfUse } from "./blocks";

/** A sentence in parts; the strong ones are set bold. */
export interface Part {
  text: string;
  strong?: boolean;
}

const strong = (text: string): Part => ({ text, strong: true });
const plain = (text: string): Part => ({ text });

function headline(state: ClusterState): string {
  if (state.cluster.engine_away_since_at) return `${state.cluster.engine} does not answer.`;
  const lost = Object.entries(state.nodes).filter(([, node]) => node.lost).map(([name]) => name);
  if (lost.length > 0) return lost.length === 1 ? `${lost[0]} is lost.` : `${capital(inWords(lost.length))} nodes are lost.`;
  const { variance, v_bound: bound, running } = state.tiles;
  if (running === 0) return state.tiles.queued > 0 ? "Nothing runs yet." : "All is calm.";
  if (variance !== null && bound !== null && variance > bound) return "Listing.";
  return "On an even keel.";
}

function fairness(state: ClusterState): string {
  const { variance, v_bound: bound, running } = state.tiles;
  if (running < 2 || variance === null) return "";
  if (bound === null) return `; their slowdown variance is ${spread(variance)}`;
  if (variance <= bound) return " and are treated alike within the bound";
  return `, but not alike: the slowdown variance ${spread(variance)} is above the bound ${spread(bound)}`;
}

/** The soonest end, among jobs this reader can see, that frees GPUs somebody in the queue waits for; and who is first there. */
export function nextFree(state: ClusterState, jobs: Iterable<JobView>, now: Date): { at: Date; first: number } | null {
  let soonest: { at: number; firsts: Set<number> } | null = null;
  for (const job of jobs) {
    const full = job.full && !job.full.finished_at ? job.full : null;
    const at = full?.expected_end_at ? Date.parse(full.expected_end_at) : NaN;
    if (!Number.isFinite(at) || at <= now.getTime() || (soonest !== null && at >= soonest.at)) continue;
    const firsts = new Set((full?.allocation?.gpus ?? []).flatMap((gpu) => state.nodes[gpu.node]?.first_waiting ?? []));
    if (firsts.size > 0) soonest = { at, firsts };
  }
  if (soonest === null) return null;
  const { at, firsts } = soonest;
  const first = state.queue.find((number) => firsts.has(number));
  return first === undefined ? null : { at: new Date(at), first };
}

function waiting(state: ClusterState, jobs: Map<number, JobView>, now: Date): Part[] {
  const { queued } = state.tiles;
  const free = state.tiles.gpus_total - state.tiles.gpus_busy - gpusOutOfUse(state);
  if (queued === 0) return [plain(free > 0 && state.tiles.running > 0 ? ` Nothing waits; ${count(free, "GPU")} ${free === 1 ? "is" : "are"} free.` : " Nothing waits.")];
  const parts = [plain(` ${capital(inWords(queued))} ${queued === 1 ? "job waits" : "jobs wait"}`)];
  const wanted = new Set(Object.values(state.nodes).map((node) => node.first_waiting));
  const first = state.queue.find((number) => wanted.has(number));
  const next = nextFree(state, jobs.values(), now);
  const head = next?.first ?? first;
  const start = head === undefined ? undefined : jobs.get(head)?.full?.expected_start?.p50_at;
  if (start && Date.parse(start) > now.getTime()) parts.push(plain(`; #${head} is first, and starts at about `), strong(moment(new Date(start), now)));
  else if (next) parts.push(plain("; the next GPUs are expected free at "), strong(clock(next.at)), plain(`, and #${next.first} is first for them`));
  else if (first !== undefined) parts.push(plain(`; #${first} is first`));
  else parts.push(plain(queued === 1 ? ", but not for GPUs that it could have now" : ", none of them for GPUs that it could have now"));
  return [...parts, plain(".")];
}

/** The overview's opening: is it fair, is it full, when is it my turn. */
export function overviewSentence(state: ClusterState, jobs: Map<number, JobView>, now: Date): Part[] {
  const { gpus_busy: busy, gpus_total: total, gpus_others: others } = state.tiles;
  const holding = Object.values(state.jobs).filter((job) => job.gpus > 0).length; // those that start or move hold GPUs too
  if (total === 0 && others > 0) return [strong(`All ${count(others, "GPU")} are used by others in ${state.cluster.engine}.`), ...waiting(state, jobs, now)];
  if (total === 0) return [strong("No accelerators yet."), plain(" Nothing can run until an executor reports some.")];
  const parts = [strong(headline(state))];
  if (holding > 0) {
    const share = holding === 1 ? "1 job has" : `${count(holding, "job")} share`;
    parts.push(plain(` ${share} ${busy} of ${total} GPUs${fairness(state)}.`));
  } else {
    const out = gpusOutOfUse(state);
    const free = out > 0 ? `${total - out} of ${count(total, "GPU")} are free.` : `All ${count(total, "GPU")} are free.`;
    parts.push(plain(` ${busy === 0 ? free : `${busy} of ${total} GPUs are allocated.`}`));
  }
  return [...parts, ...waiting(state, jobs, now)];
}
