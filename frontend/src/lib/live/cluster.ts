import { useSyncExternalStore } from "react";

/** Which of several clusters the pages show: one name, remembered, and in the address of pages that follow it. */
const KEY = "evenkeel-cluster";
const listeners = new Set<() => void>();
let chosen: string | null = stored();

function stored(): string | null {
  try {
    return localStorage.getItem(KEY);
  } catch {
    return null;
  }
}

/** Null: the first. */
export const chosenCluster = () => chosen;

export function chooseCluster(name: string | null): void {
  if (name === chosen) return;
  chosen = name;
  try {
    if (name === null) localStorage.removeItem(KEY);
    else localStorage.setItem(KEY, name);
  } catch {
    // Storage is off: the choice lasts as long as the page.
  }
  for (const listener of listeners) listener();
}

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

export const useChosenCluster = () => useSyncExternalStore(subscribe, chosenCluster);

/** What the API has of each cluster; windows and rollouts are changed by their own number. */
const OF_A_CLUSTER = /^(nodes|policy|partitions|fairness|shares|rounds)(\/|$)|^(windows|idle-rule|priorities|timeline|history|model-types|accelerator-types)$|^rollouts(\/proposal|\/[^/]+\/promote)?$|^projects\/[^/]+\/what-if$/;

export const isOfCluster = (path: string) => OF_A_CLUSTER.test(path);

/** Pages that show one cluster. */
const FOLLOWING = /^\/(cluster\/?.*|shares|fairness|policy|lab\/?.*)?$/;

export const followsCluster = (pathname: string) => FOLLOWING.test(pathname);
