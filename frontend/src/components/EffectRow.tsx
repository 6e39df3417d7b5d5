import type { JobPreview } from "../api/types";
import { count, duration, gangWords, number, variance } from "../lib/format";
import { JobRef } from "./JobRef";

type Effect = JobPreview["effects"][number];
type Gang = Effect["before"];

/** The head of a table of effects. */
export function EffectHead() {
  return <thead><tr><th scope="col">Job</th><th scope="col" className="ra">GPUs</th><th scope="col" className="ra">Slowdown</th><th scope="col" className="ra">Later by</th></tr></thead>;
}

/** What a job would have with a change and without it. */
export function EffectRow({ effect }: { effect: Effect }) {
  return (
    <tr>
      <td className="wide"><JobRef number={effect.job.number} name={effect.job.name} project={effect.job.project} /></td>
      <td className="ra" data-l="GPUs">{gangs(effect.before, effect.after)}</td>
      <td className="ra" data-l="Slowdown"><span>{slow(effect.slowdown_before)} → <b>{slow(effect.slowdown_after)}</b></span></td>
      <td className="ra" data-l="Later by">{later(effect)}</td>
    </tr>
  );
}

/** 4 → 2 Titan XP; with both types where they differ. */
function gangs(before: Gang, after: Gang): string {
  if (before && after && before.type === after.type && before.count === after.count) return `${gangWords(after)}, others`;
  const name = (gang: Gang) => (gang === null ? "none" : gangWords(gang));
  return before && after && before.type === after.type ? `${before.count} → ${name(after)}` : `${name(before)} → ${name(after)}`;
}

function slow(value: number | null): string {
  return value === null ? "–" : number(value, 2);
}

function later({ later_s, after, before, running }: Effect): string {
  if (after === null) return running ? "requeued" : "stays queued";
  if (before === null && !running) return "starts";
  if (later_s === null) return "–";
  return later_s >= 0 ? `ends ${duration(later_s)} later` : `ends ${duration(-later_s)} sooner`;
}

/** What the table leaves out, and the variance of relative throughput where it changes; nothing where neither is. */
export function EffectFoot({ hidden, spread, className }: { hidden: number; spread: JobPreview["variance"]; className?: string | undefined }) {
  const changed = spread.after !== null && spread.after !== spread.before;
  if (hidden <= 0 && !changed) return null;
  const bound = spread.bound === null ? "" : `, bound ${variance(spread.bound)}`;
  return (
    <p className={`sub ${className ?? ""}`}>
      {hidden > 0 && `And ${count(hidden, "more job")}. `}
      {changed && `Variance of relative throughput ${spread.before === null ? "0" : variance(spread.before)} → ${variance(spread.after ?? 0)}${bound}.`}
    </p>
  );
}
