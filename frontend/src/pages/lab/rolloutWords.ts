import type { Guard } from "../../api/rolloutHooks";
import type { RolloutIndicators, RolloutLimits, ShadowDecision, ShadowJob } from "../../api/types";
import { count, duration, gangWords, integer, number, percent } from "../../lib/format";

type Key = keyof RolloutLimits;
export const INDICATORS: { key: Key; label: string; enough: "waits" | "ended" | "samples"; rests: string }[] = [
  { key: "wait_p95_s", label: "p95 wait", enough: "waits", rests: "job that waited" },
  { key: "slowdown_variance", label: "Variance of slowdown", enough: "ended", rests: "job that came and went" },
  { key: "utilisation", label: "Utilisation while jobs waited", enough: "samples", rests: "point of time" },
];

export function indicator(key: Key, value: number | null | undefined): string {
  if (value === null || value === undefined) return "–";
  if (key === "utilisation") return percent(value, 1);
  return key === "wait_p95_s" ? (value === 0 ? "0 s" : duration(value)) : number(value);
}

export const boundWords = (key: Key, limit: number | null | undefined) =>
  limit === null || limit === undefined ? "not watched" : `${key === "utilisation" ? "at least" : "at most"} ${indicator(key, limit)}`;

/** Texts of the form: minutes, plain, percent; empty: not watched. */
export type BoundTexts = Record<Key, string>;

export function textsOf(limits: RolloutLimits): BoundTexts {
  const text = (value: number | null, factor: number, digits: number) => (value === null ? "" : String(Number((value * factor).toFixed(digits))));
  return { wait_p95_s: text(limits.wait_p95_s, 1 / 60, 2), slowdown_variance: text(limits.slowdown_variance, 1, 3), utilisation: text(limits.utilisation, 100, 1) };
}

export function guardOf(hours: string, jobs: string, texts: BoundTexts): Guard {
  const value = (text: string, factor: number) => (text.trim() === "" ? null : Number(text) * factor);
  const wait = value(texts.wait_p95_s, 60);
  const variance = value(texts.slowdown_variance, 1);
  const used = value(texts.utilisation, 0.01);
  return {
    guard_s: Math.round(Number(hours) * 3_600),
    least_jobs: Number(jobs),
    bounds: {
      wait_p95_s: wait === null ? null : { most: wait },
      slowdown_variance: variance === null ? null : { most: variance },
      utilisation: used === null ? null : { least: used },
    },
  };
}

/** What was said of a field of the request, at the field of the form. */
export const FIELDS: Record<string, string> = {
  guard_s: "guard_s", least_s: "guard_s", least_jobs: "least_jobs",
  "bounds.wait_p95_s.most": "wait_p95_s", "bounds.slowdown_variance.most": "slowdown_variance", "bounds.utilisation.least": "utilisation",
};

export const gang = (given: ShadowJob["live"]) => (given ? gangWords(given) : "no GPUs");

/** Which rounds a row of the shadow's decisions stands for. */
export const roundsWords = (one: Pick<ShadowDecision, "round" | "last_round">) => (one.round === one.last_round ? `Round ${integer(one.round)}` : `Rounds ${integer(one.round)} to ${integer(one.last_round)}`);

export function decisionWords(one: ShadowDecision): string {
  if (one.different === 0) return one.elsewhere === 0 ? "The same for every job." : `As many GPUs for every job, but other ones for ${count(one.elsewhere, "job")}.`;
  const { starting, preempted: out } = one.candidate;
  return `${count(one.different, "job")} would have other GPUs; ${count(starting, "start")} and ${count(out, "job")} preempted, against ${integer(one.live.starting)} and ${integer(one.live.preempted)}.`;
}

/** On how much an indicator rests. */
export function restsOn(seen: RolloutIndicators, { enough, rests }: (typeof INDICATORS)[number]): string {
  const n = seen[enough];
  const plural = rests.replace(/^(job|point)/, "$1s");
  return count(n, rests, plural);
}

const STEPS: Record<string, string> = {
  "rollout.shadow": "Put in the shadow", "rollout.promote": "Promoted", "rollout.keep": "Kept", "rollout.roll_back": "Rolled back", "rollout.cancel": "Taken out of the shadow", "rollout.supersede": "Overtaken",
};
export const stepWords = (action: string) => STEPS[action] ?? action;
