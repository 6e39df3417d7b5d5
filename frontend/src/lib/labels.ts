import { parsePairs } from "./jobFile";

/** What is sent to add "sweep=7, stage=nightly" and to remove keys; a key that is in both is added. */
export function labelPatch(add: string, remove: string[]): Record<string, string | null> {
  return { ...Object.fromEntries(remove.map((key) => [key, null])), ...parsePairs(add, /,/) };
}
