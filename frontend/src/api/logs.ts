import { useCallback, useEffect, useRef, useState } from "react";
import { get, url } from "./client";
import type { LogChunk } from "./types";

const TAIL_LINES = 400;
const EARLIER_BYTES = 64 * 1024;
const KEEP_CHARS = 1_000_000;
const POLL_MS = 2_000;

interface Log {
  text: string;
  start: number;
  next: number;
  size: number;
  ranks: number[];
}

const EMPTY: Log = { text: "", start: 0, next: 0, size: 0, ranks: [] };

async function save(job: { number: number; name: string }, rank: number): Promise<void> {
  const response = await fetch(url(`jobs/${job.number}/logs`, { rank }), { headers: { Accept: "text/plain" }, credentials: "same-origin" });
  const link = document.createElement("a");
  link.href = URL.createObjectURL(await response.blob());
  link.download = `${job.number}-${job.name}-rank${rank}.log`;
  link.click();
  URL.revokeObjectURL(link.href);
}

/** The end of one rank's log, growing while the job does; with a search text only its lines. */
export function useLogs(number: number, rank: number, search: string, growing: boolean) {
  const [log, setLog] = useState<Log>(EMPTY);
  const [error, setError] = useState<string | null>(null);
  const [loading, setLoading] = useState(true);
  const [round, setRound] = useState(0);
  const place = useRef(EMPTY);
  const put = useCallback((next: Log) => {
    place.current = next;
    setLog(next);
  }, []);
  useEffect(() => {
    const stop = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    let first = true;
    put({ ...EMPTY, ranks: place.current.ranks });
    setLoading(true);
    const read = async () => {
      const fresh = first || search !== "";
      try {
        const query = search ? { rank, search, tail: TAIL_LINES } : fresh ? { rank, tail: TAIL_LINES } : { rank, offset: place.current.next };
        const chunk = await get<LogChunk>(`jobs/${number}/logs`, query, stop.signal);
        const known = place.current;
        if (fresh) put({ text: chunk.text, start: chunk.offset, next: chunk.next_offset, size: chunk.size, ranks: chunk.ranks });
        else if (chunk.text || chunk.size !== known.size) put({ ...known, text: (known.text + chunk.text).slice(-KEEP_CHARS), next: chunk.next_offset, size: chunk.size, ranks: chunk.ranks });
        first = false;
        setError(null);
      } catch (failure) {
        if (stop.signal.aborted) return;
        setError(failure instanceof Error ? failure.message : "no answer");
      }
      setLoading(false);
      if (growing) timer = setTimeout(() => void read(), POLL_MS);
    };
    void read();
    return () => {
      stop.abort();
      clearTimeout(timer);
    };
  }, [number, rank, search, growing, round, put]);
  const loadEarlier = async () => {
    const { start } = place.current;
    const offset = Math.max(0, start - EARLIER_BYTES);
    const chunk = await get<LogChunk>(`jobs/${number}/logs`, { rank, offset, limit: start - offset });
    put({ ...place.current, text: chunk.text + place.current.text, start: chunk.offset });
  };
  return {
    ...log, error, loading, earlier: search === "" && log.start > 0,
    loadEarlier: () => void loadEarlier().catch((failure: Error) => setError(failure.message)),
    retry: () => setRound((n) => n + 1), download: save,
  };
}
