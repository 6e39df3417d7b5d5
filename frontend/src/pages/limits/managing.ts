import type { Project } from "../../api/types";

type Place = Pick<Project, "key" | "parent" | "role">;

function above(key: string, projects: Place[]): Place[] {
  const found: Place[] = [];
  for (let at = projects.find((one) => one.key === key)?.parent; at != null; at = found[found.length - 1]?.parent) {
    const next = projects.find((one) => one.key === at);
    if (!next || found.includes(next)) break;
    found.push(next);
  }
  return found;
}

/** Managers limit projects below theirs; in their own only single people. */
export const mayLimit = (key: string, projects: Place[]) => above(key, projects)[0]?.role === "manager";

/** Managers divide what a project above is guaranteed that they manage. */
export const mayGuarantee = (key: string, projects: Place[], guaranteed: ReadonlySet<string>) =>
  above(key, projects).some((one) => one.role === "manager" && guaranteed.has(one.key));
