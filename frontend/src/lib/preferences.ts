import { useSyncExternalStore } from "react";
import { configureFormat } from "./format";

export interface Preferences {
  hour12: boolean;
}

const KEY = "evenkeel-preferences";
const listeners = new Set<() => void>();
let current: Preferences = read();
configureFormat({ hour12: current.hour12 });

function read(): Preferences {
  try {
    const stored: unknown = JSON.parse(localStorage.getItem(KEY) ?? "{}");
    return { hour12: typeof stored === "object" && stored !== null && "hour12" in stored && stored.hour12 === true };
  } catch {
    return { hour12: false };
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
