import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { LiveStore, type SocketLike } from "./live";
import { mergePatch, type Json, type JsonObject } from "./mergePatch";
import { EMPTY_STREAM, withDiff, withSnapshot, type Snapshot } from "./stream";

describe("merge patches", () => {
  it.each<[Json, Json, Json]>([
    [{ a: "b" }, { a: "c" }, { a: "c" }],
    [{ a: "b", b: "c" }, { a: null }, { b: "c" }],
    [{ a: ["b"] }, { a: "c" }, { a: "c" }],
    [{ a: { b: "c" } }, { a: { b: "d", c: null } }, { a: { b: "d" } }],
    [["a"], { a: "c" }, { a: "c" }],
    [{}, { a: { bb: { ccc: null } } }, { a: { bb: {} } }],
    ["foo", null, null],
  ])("follow RFC 7386: %j with %j", (target, patch, result) => expect(mergePatch(target, patch)).toEqual(result));

  it("share what they do not touch", () => {
    const before = { a: { x: 1 }, b: { y: 2 } };
    const after = mergePatch(before, { b: { y: 3 } }) as typeof before;
    expect(after.a).toBe(before.a);
    expect(before.b.y).toBe(2);
  });
});

/** What the server does: a sequence of states and the patches between them. */
function history(length: number): { states: JsonObject[]; patches: Json[] } {
  const states: JsonObject[] = [{ jobs: {}, tiles: { queued: 0 } }];
  const patches: Json[] = [{}];
  for (let i = 1; i <= length; i += 1) {
    const patch: JsonObject = { tiles: { queued: i }, jobs: { [`${i % 7}`]: i % 5 === 0 ? null : { step: i, gpus: [i, i + 1] } } };
    patches.push(patch);
    states.push(mergePatch(states[i - 1], patch) as JsonObject);
  }
  return { states, patches };
}

describe("a stream", () => {
  const { states, patches } = history(40);
  const at = (seq: number): Snapshot => ({ seq, state: states[seq]! });

  it.each([0, 3, 17, 39])("stale state %i and patches equal the fresh state", (start) => {
    let stream = withSnapshot(EMPTY_STREAM, at(start));
    for (let seq = start + 1; seq <= 40; seq += 1) stream = withDiff(stream, { seq, patch: patches[seq]! });
    expect(stream.stale).toBe(false);
    expect(stream.state).toEqual(states[40]);
  });

  it("applies what arrived while the snapshot was fetched, once", () => {
    let stream = EMPTY_STREAM;
    for (const seq of [9, 10, 11, 12]) stream = withDiff(stream, { seq, patch: patches[seq]! });
    stream = withSnapshot(stream, at(10));
    expect(stream).toMatchObject({ seq: 12, stale: false });
    expect(stream.state).toEqual(states[12]);
  });

  it("ignores repeats and notices a gap", () => {
    let stream = withSnapshot(EMPTY_STREAM, at(5));
    stream = withDiff(stream, { seq: 5, patch: { tiles: { queued: 99 } } });
    expect(stream.state).toEqual(states[5]);
    stream = withDiff(stream, { seq: 8, patch: patches[8]! });
    expect(stream.stale).toBe(true);
    stream = withSnapshot(stream, at(7));
    expect(stream.state).toEqual(states[8]);
  });
});

class FakeSocket implements SocketLike {
  onopen: (() => void) | null = null;
  onmessage: ((event: { data: unknown }) => void) | null = null;
  onclose: (() => void) | null = null;
  sent: string[] = [];
  send(text: string) {
    this.sent.push(text);
  }
  close() {}
  say(message: object) {
    this.onmessage?.({ data: JSON.stringify(message) });
  }
}

describe("the store", () => {
  const { states, patches } = history(20);
  let sockets: FakeSocket[];
  let served: number;
  let fetched: number;
  let store: LiveStore;
  const settle = () => vi.advanceTimersByTimeAsync(0);

  beforeEach(() => {
    vi.useFakeTimers();
    sockets = [];
    served = 3;
    fetched = 0;
    store = new LiveStore({
      open: () => {
        sockets.push(new FakeSocket());
        return sockets.at(-1)!;
      },
      fetchStream: () => {
        fetched += 1;
        return Promise.resolve({ seq: served, state: states[served]! });
      },
      onRefused: () => undefined,
      now: Date.now,
    });
  });
  afterEach(() => {
    store.stop();
    vi.useRealTimers();
  });

  async function connected(): Promise<FakeSocket> {
    store.watch(["cluster"]);
    const socket = sockets.at(-1)!;
    socket.onopen?.();
    socket.say({ type: "subscribed", stream: "cluster", seq: served });
    await settle();
    return socket;
  }

  it("subscribes, fetches once and follows", async () => {
    const socket = await connected();
    expect(socket.sent).toEqual(['{"subscribe":["cluster"]}']);
    expect(store.connection.phase).toBe("live");
    socket.say({ type: "diff", stream: "cluster", seq: 4, at: "", patch: patches[4] });
    expect(store.state("cluster")).toEqual(states[4]);
    expect(fetched).toBe(1);
  });

  it("fetches again after a gap", async () => {
    const socket = await connected();
    served = 9;
    socket.say({ type: "diff", stream: "cluster", seq: 9, at: "", patch: patches[9] });
    await settle();
    expect(fetched).toBe(2);
    expect(store.state("cluster")).toEqual(states[9]);
  });

  it("fetches again where a number says that a diff was lost, with none after it", async () => {
    const socket = await connected();
    socket.say({ type: "numbers", numbers: { cluster: 3, "project:other": 70 } });
    await settle();
    expect(fetched).toBe(1);
    served = 4;
    socket.say({ type: "numbers", numbers: { cluster: 4 } });
    await settle();
    expect(fetched).toBe(2);
    expect(store.state("cluster")).toEqual(states[4]);
    expect(store.connection.phase).toBe("live");
  });

  it("says since when the connection is lost, keeps the figures and comes back fresh", async () => {
    const socket = await connected();
    const heard = Date.now();
    await vi.advanceTimersByTimeAsync(400);
    socket.onclose?.();
    expect(store.connection).toMatchObject({ phase: "lost", lostAt: heard });
    expect(store.state("cluster")).toEqual(states[3]);
    await vi.advanceTimersByTimeAsync(2_000);
    expect(sockets).toHaveLength(2);
    served = 12;
    sockets[1]!.onopen?.();
    sockets[1]!.say({ type: "subscribed", stream: "cluster", seq: 12 });
    await settle();
    expect(store.connection).toEqual({ phase: "live", lostAt: null, retryAt: null });
    expect(store.state("cluster")).toEqual(states[12]);
  });

  it("waits longer after each failure", async () => {
    await connected();
    const waits: number[] = [];
    for (let i = 0; i < 8; i += 1) {
      sockets.at(-1)!.onclose?.();
      waits.push(store.connection.retryAt! - Date.now());
      await vi.advanceTimersByTimeAsync(waits.at(-1)!);
    }
    expect(waits[0]).toBeLessThan(1_300);
    expect(Math.max(...waits)).toBeLessThanOrEqual(37_500);
    expect(waits[7]).toBeGreaterThan(20_000);
  });

  it("takes silence for a loss", async () => {
    await connected();
    await vi.advanceTimersByTimeAsync(26_000);
    expect(store.connection.phase).toBe("lost");
  });
});
