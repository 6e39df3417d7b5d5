import { useCallback, useEffect, useMemo, useRef, useState } from "react";
import type { Job } from "../../api/types";
import { MOST_AT_ONCE } from "../../lib/bulk";

export interface Selection {
  numbers: ReadonlySet<number>;
  jobs: Job[];
  /** With `through` all between the last one and this one. */
  toggle: (number: number, through?: boolean) => void;
  /** As many of those shown as one request changes. */
  all: () => void;
  clear: () => void;
}

/** Which of the jobs shown are selected; another list begins with none. */
export function useSelection(shown: Job[], list: string): Selection {
  const [numbers, setNumbers] = useState<ReadonlySet<number>>(new Set());
  const last = useRef<number | null>(null);
  const rows = useRef(shown);
  rows.current = shown;
  useEffect(() => {
    setNumbers(new Set());
    last.current = null;
  }, [list]);
  const toggle = useCallback((number: number, through = false) => {
    setNumbers((old) => {
      const order = rows.current.map((job) => job.number);
      const [from, to] = [order.indexOf(last.current ?? number), order.indexOf(number)].sort((a, b) => a - b);
      const next = new Set(old);
      const between = through && from !== undefined && from >= 0 && to !== undefined ? order.slice(from, to + 1) : [number];
      for (const one of between) if (old.has(number)) next.delete(one); else next.add(one);
      return new Set([...next].slice(0, MOST_AT_ONCE));
    });
    last.current = number;
  }, []);
  const jobs = useMemo(() => shown.filter((job) => numbers.has(job.number)), [shown, numbers]);
  const clear = useCallback(() => setNumbers(new Set()), []);
  const all = useCallback(() => setNumbers(new Set(rows.current.slice(0, MOST_AT_ONCE).map((job) => job.number))), []);
  return { numbers, jobs, toggle, all, clear };
}
