import type { Project, Qos } from "../../api/types";

/** Levels of service that jobs of the project may ask for: those for everybody, of it, or of a project above it. */
export function levelsOf(levels: Qos[], projects: Project[], wanted: unknown): Qos[] {
  const above = new Set<string>();
  let key = typeof wanted === "string" ? wanted : null;
  while (key !== null && !above.has(key)) {
    above.add(key);
    const own = key;
    key = projects.find((project) => project.key === own)?.parent ?? null;
  }
  return levels.filter((level) => level.for_everybody || level.projects.some((project) => above.has(project)));
}
