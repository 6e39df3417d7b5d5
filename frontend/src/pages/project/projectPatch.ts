import type { ProjectPatch } from "../../api/projectHooks";
import type { ProjectDetail } from "../../api/types";

/** The settings of a project as its form has them. */
export interface Settings {
  name: string;
  weight: string;
  rule: ProjectDetail["inner_rule"];
  priority: string;
  /** By cluster; empty: the same weight there. */
  shares: Record<string, string>;
  /** What its jobs are submitted as; empty: as those of the project above. */
  slurm: Record<SlurmName, string>;
}

export const SLURM_NAMES = ["account", "qos", "partition", "wckey", "reservation"] as const;
export type SlurmName = (typeof SLURM_NAMES)[number];

type Kept = Pick<ProjectDetail, "name" | "share_weight" | "inner_rule" | "priority" | "cluster_shares" | "slurm">;

export const settingsOf = (project: Kept): Settings => ({
  name: project.name,
  weight: String(project.share_weight),
  rule: project.inner_rule,
  priority: project.priority === null ? "" : String(project.priority),
  slurm: Object.fromEntries(SLURM_NAMES.map((name) => [name, project.slurm[name] ?? ""])) as Settings["slurm"],
  shares: Object.fromEntries(Object.entries(project.cluster_shares).map(([cluster, weight]) => [cluster, String(weight)])),
});

/** What was changed, as the portal takes it: the rest is left out, for it may take more rights to set. */
export function patchOf(project: Kept, settings: Settings): ProjectPatch {
  const priority = settings.priority.trim() === "" ? null : Number(settings.priority);
  const weight = Number(settings.weight);
  const shares = sharesPatch(project.cluster_shares, settings.shares);
  const slurm = slurmPatch(project.slurm, settings.slurm);
  return {
    ...(settings.name.trim() !== project.name ? { name: settings.name.trim() } : {}),
    ...(weight !== project.share_weight ? { share_weight: weight } : {}),
    ...(settings.rule !== project.inner_rule ? { inner_rule: settings.rule } : {}),
    ...(priority !== project.priority ? { priority } : {}),
    ...(Object.keys(shares).length > 0 ? { cluster_shares: shares } : {}),
    ...(Object.keys(slurm).length > 0 ? { slurm } : {}),
  };
}

function slurmPatch(kept: ProjectDetail["slurm"], filled: Settings["slurm"]): Partial<ProjectDetail["slurm"]> {
  const wanted = SLURM_NAMES.map((name): [SlurmName, string | null] => [name, filled[name].trim() || null]);
  return Object.fromEntries(wanted.filter(([name, value]) => value !== kept[name]));
}

function sharesPatch(kept: Record<string, number>, filled: Settings["shares"]): Record<string, number | null> {
  const wanted = Object.entries(filled).map(([cluster, weight]): [string, number | null] => [cluster, weight.trim() === "" ? null : Number(weight)]);
  return Object.fromEntries(wanted.filter(([cluster, weight]) => weight !== (kept[cluster] ?? null)));
}
