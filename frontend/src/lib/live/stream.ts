import { isObject, mergePatch, type Json, type JsonObject } from "./mergePatch";

export interface Diff {
  seq: number;
  patch: Json;
}

export interface Snapshot {
  seq: number;
  state: JsonObject;
}

/** One numbered stream as this browser knows it. `state` stays readable while a fresh snapshot is on its way. */
export interface Stream {
  seq: number;
  state: JsonObject | null;
  stale: boolean;
  pending: Diff[];
}

export const EMPTY_STREAM: Stream = { seq: -1, state: null, stale: true, pending: [] };
const MAX_PENDING = 500;

/** Takes one diff. The result is `stale` where a number was skipped: then only a snapshot helps. */
export function withDiff(stream: Stream, diff: Diff): Stream {
  if (stream.stale) return { ...stream, pending: [...stream.pending, diff].slice(-MAX_PENDING) };
  if (diff.seq <= stream.seq) return stream;
  if (diff.seq !== stream.seq + 1) return { ...stream, stale: true, pending: [diff] };
  const next = mergePatch(stream.state ?? {}, diff.patch);
  return { ...stream, seq: diff.seq, state: isObject(next) ? next : {} };
}

/** Takes a snapshot and then, in order, what arrived while it was fetched. */
export function withSnapshot(stream: Stream, snapshot: Snapshot): Stream {
  const later = stream.pending.filter((diff) => diff.seq > snapshot.seq).sort((a, b) => a.seq - b.seq);
  const fresh: Stream = { seq: snapshot.seq, state: snapshot.state, stale: false, pending: [] };
  return later.reduce(withDiff, fresh);
}

/** What is known stays on show, but needs a snapshot before the next diff counts. */
export function marked(stream: Stream): Stream {
  return { ...stream, stale: true, pending: [] };
}
