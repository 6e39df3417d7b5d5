import type { Forecast, JobPreview } from "../../api/types";
import { JobRef } from "../../components/JobRef";
import { Panel } from "../../components/Panel";
import { count, duration, number, THIN, typeName, variance } from "../../lib/format";
import css from "./submit.module.css";

type Effect = JobPreview["effects"][number];
type Gang = Effect["before"];

const MOST = 8;

/** Whose GPUs and slowdown the next round would change for it, and who of the queue would start later. */
export function EffectPanel({ preview, forecast, old }: { preview: JobPreview; forecast: Forecast | null; old: boolean }) {
  const { effects, affected, variance: spread, verdict } = preview;
  const delayed = forecast?.delayed ?? [];
  if (verdict === "never") return null;
  const hidden = affected - Math.min(affected, MOST) + (forecast?.others_delayed ?? 0) - Math.min(delayed.length, MOST);
  const changed = spread.after !== null && spread.after !== spread.before;
  return (
    <Panel title="Effect on others" meta={affected === 0 ? undefined : count(affected, "job") + " with other GPUs"}>
      {affected === 0 && delayed.length === 0 ? (
        <p className="empty">Nobody else would have other GPUs{forecast ? ", and nobody would start noticeably later" : ""}.</p>
      ) : (
        <div className={`tw ${old ? css.old : ""}`} tabIndex={0}>
          <table className={`t cards ${css.options}`}>
            <thead><tr><th scope="col">Job</th><th scope="col" className="ra">GPUs</th><th scope="col" className="ra">Slowdown</th><th scope="col" className="ra">Later by</th></tr></thead>
            <tbody>
              {effects.slice(0, MOST).map((effect) => <Row key={effect.job.number} effect={effect} />)}
              {delayed.slice(0, MOST).map(({ job, later_s }) => (
                <tr key={`late-${job.number}`}>
                  <td className="wide"><JobRef number={job.number} name={job.name} project={job.project} /></td>
                  <td className="ra" data-l="GPUs">waits</td>
                  <td className="ra" data-l="Slowdown">–</td>
                  <td className="ra" data-l="Later by">starts {duration(later_s)} later</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      {(hidden > 0 || changed) && (
        <p className={`sub ${css.none}`}>
          {hidden > 0 && `And ${count(hidden, "more job")}. `}
          {changed && `Variance of relative throughput ${spread.before === null ? "0" : variance(spread.before)} → ${variance(spread.after ?? 0)}${spread.bound === null ? "" : `, bound ${variance(spread.bound)}`}.`}
        </p>
      )}
    </Panel>
  );
}

function Row({ effect }: { effect: Effect }) {
  return (
    <tr>
      <td className="wide"><JobRef number={effect.job.number} name={effect.job.name} project={effect.job.project} /></td>
      <td className="ra" data-l="GPUs">{gangs(effect.before, effect.after)}</td>
      <td className="ra" data-l="Slowdown">{slow(effect.slowdown_before)} → <b>{slow(effect.slowdown_after)}</b></td>
      <td className="ra" data-l="Later by">{later(effect)}</td>
    </tr>
  );
}

/** 4 → 2 Titan XP; with both types where they differ. */
function gangs(before: Gang, after: Gang): string {
  const name = (gang: Gang) => (gang === null ? "none" : `${gang.count}${THIN}×${THIN}${typeName(gang.type)}`);
  return before && after && before.type === after.type ? `${before.count} → ${name(after)}` : `${name(before)} → ${name(after)}`;
}

function slow(value: number | null): string {
  return value === null ? "–" : number(value, 2);
}

function later({ later_s, after }: Effect): string {
  if (after === null) return "queued again";
  if (later_s === null) return "–";
  return later_s >= 0 ? `ends ${duration(later_s)} later` : `ends ${duration(-later_s)} sooner`;
}
