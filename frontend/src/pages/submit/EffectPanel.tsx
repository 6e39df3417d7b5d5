import type { Forecast, JobPreview } from "../../api/types";
import { EffectFoot, EffectHead, EffectRow } from "../../components/EffectRow";
import { JobRef } from "../../components/JobRef";
import { Panel } from "../../components/Panel";
import { count, duration } from "../../lib/format";
import css from "./submit.module.css";

const MOST = 8;

/** Whose GPUs and slowdown the next round would change for it, and who of the queue would start later. */
export function EffectPanel({ preview, forecast, old }: { preview: JobPreview; forecast: Forecast | null; old: boolean }) {
  const { effects, affected, variance, verdict } = preview;
  const delayed = forecast?.delayed ?? [];
  if (verdict === "never") return null;
  const hidden = affected - Math.min(affected, MOST) + (forecast?.others_delayed ?? 0) - Math.min(delayed.length, MOST);
  return (
    <Panel title="Effect on others" meta={affected === 0 ? undefined : `${count(affected, "job")} with other GPUs`}>
      {affected === 0 && delayed.length === 0 ? (
        <p className="empty">The GPUs of other jobs would not change{forecast ? ", and no job would start noticeably later" : ""}.</p>
      ) : (
        <div className={`tw ${old ? css.old : ""}`} tabIndex={0}>
          <table className={`t cards ${css.options}`}>
            <EffectHead />
            <tbody>
              {effects.slice(0, MOST).map((effect) => <EffectRow key={effect.job.number} effect={effect} />)}
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
      <EffectFoot hidden={hidden} spread={variance} className={css.none} />
    </Panel>
  );
}
