import type { Factor } from "../../api/types";
import { integer } from "../format";

const WORDS: Record<string, string> = {
  age: "waiting", fair_share: "fair share", job_size: "size", partition: "partition", qos: "level", assoc: "project", site: "set by an administrator",
};
/** Each has its own fill everywhere, whichever of them count; what is named after a resource follows. */
const PLACES = Object.keys(WORDS);

export const factorWord = (name: string) => WORDS[name] ?? name;

export interface Made {
  factors: Factor[];
  site: number;
  nice: number;
}

export interface Part {
  name: string;
  word: string;
  points: number;
  /** Its place among the fills. */
  fill: number;
}

/** What a priority is heaped up from, in order; `site` where it adds something. */
export function partsOf({ factors, site }: Pick<Made, "factors" | "site">): Part[] {
  const resources = factors.filter((factor) => !PLACES.includes(factor.name)).map((factor) => factor.name);
  const fill = (name: string) => (PLACES.includes(name) ? PLACES.indexOf(name) : PLACES.length + resources.indexOf(name));
  const counted = factors.filter((factor) => factor.weight > 0).map((factor) => ({ name: factor.name, points: factor.points }));
  const all = site > 0 ? [...counted, { name: "site", points: site }] : counted;
  return all.map((part) => ({ ...part, word: factorWord(part.name), fill: fill(part.name) }));
}

export const heapOf = (made: Made) => partsOf(made).reduce((sum, part) => sum + part.points, 0);

/** What is taken off the heap: by nice, and by a priority of the job file below 0. */
export const takenOff = ({ site, nice }: Pick<Made, "site" | "nice">) => nice + Math.max(0, -site);

/** The heap in words. */
export function madeOf(made: Made): string {
  const taken = takenOff(made);
  const parts = partsOf(made).map((part) => `${part.word} ${integer(Math.round(part.points))}`);
  return [...parts, ...(taken > 0 ? [`taken off ${integer(taken)}`] : [])].join(", ");
}

/** Every part that some of them have, once each and in order of their fills; those that add nothing anywhere, too. */
export function partsOfAll(rows: Made[]): Part[] {
  const known = new Map(rows.flatMap(partsOf).map((part) => [part.name, part]));
  return [...known.values()].sort((a, b) => a.fill - b.fill);
}
