import { useCallback, useEffect, useMemo, useRef, useState } from "react";
import type { Job } from "../../api/types";
import { MOST_AT_ONCE } from "./bulk";

export interface Selection {
  numbers: ReadonlySet<number>;
  jobs: Job[];
  /** With `through` all between the last one and this one. */
  toggle: (number: number, through?: boolean) => void;
  /** As many of those shown as one request changes. */
  all: () => void;
  clear: () => void;
}

/** Numbers of the rows from one to the other, whichever stands first. */
function stretch(shown: Job[], from: number | null, to: number): number[] {
  const order = shown.map((job) => job.number);
  const [first = -1, last = -1] = [order.indexOf(from ?? to), order.indexOf(to)].sort((a, b) => a - b);
  return first < 0 ? [to] : order.slice(first, last + 1);
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
    const between = through ? stretch(rows.current, last.current, number) : [number];
    last.current = number;
    setNumbers((old) => {
      const next = new Set(old);
      for (const one of between) {
        if (old.has(number)) next.delete(one);
        else next.add(one);
      }
      return new Set([...next].slice(0, MOST_AT_ONCE));
    });
  }, []);
  const jobs = useMemo(() => shown.filter((job) => numbers.has(job.number)), [shown, numbers]);
  const clear = useCallback(() => setNumbers(new Set()), []);
  const all = useCallback(() => setNumbers(new Set(rows.current.slice(0, MOST_AT_ONCE).map((job) => job.number))), []);
  return { numbers, jobs, toggle, all, clear };
}
