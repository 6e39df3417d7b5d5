import type { Project } from "../../api/types";

type Place = Pick<Project, "key" | "name" | "parent">;

export interface Placed<P> {
  project: P;
  /** How deep below the outermost one that is shown. */
  level: number;
}

/** Each under the one above it, siblings by name. What is above and not shown leaves its own at the outermost level. */
export function treeOf<P extends Place>(projects: P[]): Placed<P>[] {
  const keys = new Set(projects.map((one) => one.key));
  const below = new Map<string, P[]>();
  for (const one of [...projects].sort((a, b) => a.name.localeCompare(b.name))) {
    const parent = one.parent !== null && keys.has(one.parent) ? one.parent : "";
    below.set(parent, [...(below.get(parent) ?? []), one]);
  }
  const placed: Placed<P>[] = [];
  const walk = (parent: string, level: number) => {
    for (const project of below.get(parent) ?? []) {
      placed.push({ project, level });
      walk(project.key, level + 1);
    }
  };
  walk("", 0);
  return placed;
}

type Held = Place & Pick<Project, "gpus_allocated" | "spend_month" | "budget_month" | "with_below">;

export interface Totals {
  gpus: number;
  spent: number;
  /** Of the outermost budgets, each with all that is below it; null where there is none. */
  share: number | null;
}

/** What projects hold and spend together, nothing counted twice. */
export function totalsOf(projects: Held[]): Totals {
  const known = new Map(projects.map((one) => [one.key, one]));
  const budgeted = (one: Held) => one.budget_month !== null && Number(one.budget_month) > 0;
  const above = (one: Held): boolean => {
    const parent = one.parent === null ? undefined : known.get(one.parent);
    return parent !== undefined && (budgeted(parent) || above(parent));
  };
  const outermost = projects.filter((one) => budgeted(one) && !above(one));
  const budget = outermost.reduce((sum, one) => sum + Number(one.budget_month), 0);
  return {
    gpus: projects.reduce((sum, one) => sum + one.gpus_allocated, 0),
    spent: projects.reduce((sum, one) => sum + Number(one.spend_month), 0),
    share: budget === 0 ? null : outermost.reduce((sum, one) => sum + Number(one.with_below.spend_month), 0) / budget,
  };
}
