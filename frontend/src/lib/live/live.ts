import { isObject, type Json } from "./mergePatch";
import { EMPTY_STREAM, marked, withDiff, withSnapshot, type Snapshot, type Stream } from "./stream";

export interface SocketLike {
  onopen: (() => void) | null;
  onmessage: ((event: { data: unknown }) => void) | null;
  onclose: (() => void) | null;
  send(text: string): void;
  close(): void;
}

export interface Connection {
  phase: "idle" | "connecting" | "live" | "lost";
  lostAt: number | null;
  retryAt: number | null;
}

export interface LiveDeps {
  open: () => SocketLike;
  fetchStream: (name: string) => Promise<Snapshot>;
  onRefused: (error: unknown) => void;
  now: () => number;
}

const SILENCE_MS = 25_000;
const FIRST_RETRY_MS = 1_000;
const LAST_RETRY_MS = 30_000;
const CONNECTING_GRACE_MS = 6_000;
const COALESCE_MS = 100;

/** Keeps one WebSocket, applies each stream's merge patches and asks for a snapshot where a number is missing. */
export class LiveStore {
  private streams = new Map<string, Stream>();
  private fetching = new Set<string>();
  private listeners = new Set<() => void>();
  private socket: SocketLike | null = null;
  private attempts = 0;
  private retryTimer: ReturnType<typeof setTimeout> | undefined;
  private silenceTimer: ReturnType<typeof setTimeout> | undefined;
  private announcing: ReturnType<typeof setTimeout> | undefined;
  private wanted: string[] = [];
  private heardAt = 0;
  connection: Connection = { phase: "idle", lostAt: null, retryAt: null };

  constructor(private readonly deps: LiveDeps) {}

  readonly subscribe = (listener: () => void): (() => void) => {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  };

  state(name: string): unknown {
    return this.streams.get(name)?.state ?? null;
  }

  watch(names: string[]): void {
    if (names.join() === this.wanted.join() && this.connection.phase !== "idle") return;
    this.wanted = names;
    for (const known of [...this.streams.keys()]) if (!names.includes(known)) this.streams.delete(known);
    if (this.connection.phase === "live") this.ask();
    else if (this.connection.phase === "idle") this.connect();
  }

  stop(): void {
    clearTimeout(this.retryTimer);
    clearTimeout(this.silenceTimer);
    this.drop();
    this.streams.clear();
    this.wanted = [];
    this.connection = { phase: "idle", lostAt: null, retryAt: null };
    this.changed();
  }

  readonly connect = (): void => {
    clearTimeout(this.retryTimer);
    this.drop();
    if (this.connection.phase !== "lost") this.connection = { phase: "connecting", lostAt: null, retryAt: null };
    const socket = this.deps.open();
    this.socket = socket;
    socket.onopen = () => this.ask();
    socket.onmessage = (event) => this.receive(event.data);
    socket.onclose = () => this.lose();
    this.expectWord(this.attempts === 0 ? CONNECTING_GRACE_MS : SILENCE_MS);
    this.changed();
  };

  private drop(): void {
    if (!this.socket) return;
    this.socket.onopen = this.socket.onmessage = this.socket.onclose = null;
    this.socket.close();
    this.socket = null;
  }

  private ask(): void {
    this.socket?.send(JSON.stringify({ subscribe: this.wanted }));
  }

  private expectWord(ms: number): void {
    clearTimeout(this.silenceTimer);
    this.silenceTimer = setTimeout(() => this.lose(), ms);
  }

  private lose(): void {
    clearTimeout(this.silenceTimer);
    this.drop();
    const now = this.deps.now();
    const wait = Math.min(LAST_RETRY_MS, FIRST_RETRY_MS * 2 ** this.attempts) * (0.75 + Math.random() / 2);
    this.attempts += 1;
    const lostAt = this.connection.lostAt ?? (this.heardAt || now);
    this.connection = { phase: "lost", lostAt, retryAt: now + wait };
    for (const [name, stream] of this.streams) this.streams.set(name, marked(stream));
    this.retryTimer = setTimeout(this.connect, wait);
    this.changed();
  }

  private receive(data: unknown): void {
    this.heardAt = this.deps.now();
    this.expectWord(SILENCE_MS);
    const message = typeof data === "string" ? (JSON.parse(data) as Json) : null;
    if (!isObject(message)) return;
    const name = typeof message.stream === "string" ? message.stream : "";
    if (message.type === "subscribed") {
      this.streams.set(name, marked(this.streams.get(name) ?? EMPTY_STREAM));
      void this.refresh(name);
    } else if (message.type === "diff" && typeof message.seq === "number") {
      const stream = withDiff(this.streams.get(name) ?? EMPTY_STREAM, { seq: message.seq, patch: message.patch ?? {} });
      this.streams.set(name, stream);
      if (stream.stale) void this.refresh(name);
      else this.changed();
    } else if (message.type === "numbers" && isObject(message.numbers)) {
      for (const [of, seq] of Object.entries(message.numbers)) if (typeof seq === "number") this.compare(of, seq);
    }
  }

  /** A diff that was lost on its way, with none after it, shows in the number alone. */
  private compare(name: string, seq: number): void {
    const stream = this.streams.get(name);
    if (!stream || stream.stale || stream.seq >= seq) return;
    this.streams.set(name, marked(stream));
    void this.refresh(name);
  }

  private async refresh(name: string): Promise<void> {
    if (this.fetching.has(name) || !this.wanted.includes(name)) return;
    this.fetching.add(name);
    try {
      const snapshot = await this.deps.fetchStream(name);
      if (!this.wanted.includes(name)) return;
      this.streams.set(name, withSnapshot(this.streams.get(name) ?? EMPTY_STREAM, snapshot));
      this.settle();
    } catch (error) {
      this.deps.onRefused(error);
      this.lose();
      return;
    } finally {
      this.fetching.delete(name);
    }
    if (this.streams.get(name)?.stale) void this.refresh(name);
  }

  private settle(): void {
    const fresh = this.wanted.every((name) => this.streams.get(name)?.stale === false);
    if (fresh && this.socket) {
      this.attempts = 0;
      this.connection = { phase: "live", lostAt: null, retryAt: null };
    }
    this.changed();
  }

  /** Streams speak at the same moments: what arrives within a tenth of a second is one change to the page. */
  private changed(): void {
    if (this.announcing !== undefined) return;
    this.announcing = setTimeout(() => {
      this.announcing = undefined;
      for (const listener of this.listeners) listener();
    }, COALESCE_MS);
  }
}
