import type { Resources } from "../../api/types";
import { count, duration, percent, typeName } from "../../lib/format";
import type { ChartData } from "./series";

export type Resource = keyof Resources["series"];
export const RESOURCES: Resource[] = ["gpu", "gpu_memory", "gpu_cores", "pcie"];
export const RESOURCE_NAMES: Record<Resource, string> = { gpu: "GPU use", gpu_memory: "GPU memory", gpu_cores: "GPU cores", pcie: "PCIe" };

/** In percent of one GPU; null between two launches, where nothing is drawn. */
export function partsAsPercent(points: Resources["series"]["gpu"]): ChartData {
  const none = points.map(() => null);
  return { times: points.map(([at]) => at), values: points.map(([, part]) => (part === null ? null : 100 * part)), predicted: none, steps: none };
}

export const known = (series: Resources["series"]): Resource[] => RESOURCES.filter((name) => series[name].some(([, part]) => part !== null));

/** What is said in place of the charts of resources that nobody knows. */
export function unknownWords(found: Resources): string {
  const missing = RESOURCES.filter((name) => !known(found.series).includes(name)).map((name) => RESOURCE_NAMES[name]);
  if (missing.length === 0 || found.launches.length === 0) return "";
  const why = found.emulated ? "emulated devices have none" : found.launches.at(-1)!.share_percent < 100 ? "of a part of a GPU the driver does not say it" : "the driver does not say it";
  return `${missing.join(" and ")}: ${why}.`;
}

type Profile = Resources["profiles"][number];

export function profileTitle(profile: Profile): string {
  const share = profile.share_percent < 100 ? `${percent(profile.share_percent / 100)} of ` : "";
  return `${share}${profile.gpus}\u2009×\u2009${typeName(profile.type)}`;
}

/** "GPU use 42 %, at most 90 %; GPU memory 12 %, at most 14 %" */
export function profileWords(profile: Profile): string {
  const parts = RESOURCES.flatMap((name) => {
    const mean = profile.mean[name];
    return mean === null ? [] : [`${RESOURCE_NAMES[name]} ${percent(mean)}, at most ${percent(profile.peak[name] ?? mean)}`];
  });
  return parts.join("; ");
}

export const profileBasis = (profile: Profile): string => `${count(profile.launches, "launch", "launches")}, ${duration(profile.seconds)}${profile.emulated ? ", emulated" : ""}`;
