import { useSyncExternalStore } from "react";
import type { JobColumn } from "../api/types";
import { configureFormat } from "./format";
import { columnsOf, USUAL_COLUMNS } from "./job/jobColumns";

export interface Preferences {
  hour12: boolean;
  /** Of the table of jobs. */
  jobColumns: JobColumn[];
}

const KEY = "evenkeel-preferences";
const listeners = new Set<() => void>();
let current: Preferences = read();
configureFormat({ hour12: current.hour12 });

function read(): Preferences {
  try {
    const parsed: unknown = JSON.parse(localStorage.getItem(KEY) ?? "{}");
    const stored = (typeof parsed === "object" && parsed !== null ? parsed : {}) as Partial<Record<keyof Preferences, unknown>>;
    return { hour12: stored.hour12 === true, jobColumns: columnsOf(stored.jobColumns) ?? USUAL_COLUMNS };
  } catch {
    return { hour12: false, jobColumns: USUAL_COLUMNS };
  }
}

export function setPreferences(next: Partial<Preferences>): void {
  current = { ...current, ...next };
  configureFormat({ hour12: current.hour12 });
  try {
    localStorage.setItem(KEY, JSON.stringify(current));
  } catch {
    // Storage is off: the choice lasts as long as the page.
  }
  for (const listener of listeners) listener();
}

export function usePreferences(): Preferences {
  return useSyncExternalStore(
    (listener) => {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    () => current,
  );
}
