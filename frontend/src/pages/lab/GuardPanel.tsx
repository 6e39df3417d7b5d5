import { lazy, Suspense, useMemo } from "react";
import { useGuardChecks } from "../../api/rolloutHooks";
import type { GuardCheck, RolloutDetail } from "../../api/types";
import type { Line } from "../../components/TimeChart";
import { Loadable, Panel, Skeleton } from "../../components/Panel";
import { dateTime } from "../../lib/format";
import { boundWords, indicator, INDICATORS, restsOn } from "./rolloutWords";
import css from "./lab.module.css";
import { Name } from "../../components/Name";

const TimeChart = lazy(() => import("../../components/TimeChart"));
type Indicator = (typeof INDICATORS)[number];

/** What is measured since the policy is in force, against the bounds and what was predicted. */
export function GuardPanel({ rollout }: { rollout: RolloutDetail }) {
  const query = useGuardChecks(rollout.id, rollout.phase === "live");
  return (
    <Panel title="Guard" meta={`since ${dateTime(new Date(rollout.promoted_at ?? ""))}; judged from ${rollout.least_jobs} jobs on, and where two checks in a row agree`}>
      <Loadable query={query} what="The guard" skeleton={<Skeleton height={30} count={3} />}>
        {(checks) => (
          <>
            <Figures rollout={rollout} last={checks.at(-1)} />
            {checks.length > 1 && <div className={css.charts} style={{ padding: "14px 0 4px" }}>{INDICATORS.map((one) => <Course key={one.key} rollout={rollout} checks={checks} of={one} />)}</div>}
            {checks.length < 2 && <p className="empty">It is looked at every 15 s, and less often where it is watched for long: the lines begin with the second time.</p>}
          </>
        )}
      </Loadable>
    </Panel>
  );
}

function Figures({ rollout, last }: { rollout: RolloutDetail; last: GuardCheck | undefined }) {
  return (
    <div className="tw" tabIndex={0}>
      <table className="t cards">
        <thead><tr><th scope="col">Indicator</th><th scope="col" className="ra">Measured</th><th scope="col" className="ra">Bound</th><th scope="col" className="ra">Predicted</th><th scope="col" className="ra">As long before</th><th scope="col">Rests on</th></tr></thead>
        <tbody>
          {INDICATORS.map((one) => (
            <tr key={one.key}>
              <td className="wide" style={{ fontWeight: 500 }}><Name>{one.label}</Name> {last?.broken.includes(one.key) && <span className="chip bad">broken</span>}</td>
              <td data-l="Measured" className="ra">{indicator(one.key, last?.[one.key])}</td>
              <td data-l="Bound" className="ra">{boundWords(one.key, rollout.limits?.[one.key])}</td>
              <td data-l="Predicted" className="ra">{indicator(one.key, rollout.prediction?.[one.key])}</td>
              <td data-l="As long before" className="ra">{indicator(one.key, rollout.before?.[one.key])}</td>
              <td className="whole" data-l="Rests on">{last ? restsOn(last, one) : "–"}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Course({ rollout, checks, of }: { rollout: RolloutDetail; checks: GuardCheck[]; of: Indicator }) {
  const bound = rollout.limits?.[of.key] ?? null;
  const predicted = rollout.prediction?.[of.key] ?? null;
  const times = useMemo(() => checks.map((check) => Date.parse(check.at) / 1000), [checks]);
  const lines = useMemo(() => {
    const scale = of.key === "utilisation" ? 100 : of.key === "wait_p95_s" ? 1 / 60 : 1;
    const flat = (value: number | null) => checks.map(() => (value === null ? null : value * scale));
    return [
      { label: "measured", kind: "line", tone: 0, token: "accent", values: checks.map((check) => { const value = check[of.key]; return value === null ? null : value * scale; }) },
      { label: "bound", kind: "line", tone: 0, token: "bad", dash: true, dots: false, values: flat(bound) },
      { label: "predicted", kind: "line", tone: 0, token: "ink-3", dots: false, values: flat(predicted) },
    ] satisfies Line[];
  }, [checks, of, bound, predicted]);
  const unit = of.key === "utilisation" ? "%" : of.key === "wait_p95_s" ? "min" : "";
  return (
    <figure style={{ margin: 0, padding: "0 14px" }}>
      <figcaption style={{ fontWeight: 500 }}>{of.label}{unit && <span className="sub">, {unit}</span>}</figcaption>
      <Suspense fallback={<Skeleton height={130} />}><TimeChart x={times} lines={lines} height={130} label={`${of.label} since it is in force, with its bound and what was predicted`} /></Suspense>
      <div className="legend">
        <span><i style={{ width: 16, height: 2, background: "var(--accent)" }} />measured</span>
        {bound !== null && <span><i style={{ width: 16, borderTop: "2px dashed var(--bad)" }} />bound {indicator(of.key, bound)}</span>}
        {predicted !== null && <span><i style={{ width: 16, height: 2, background: "var(--ink-3)" }} />predicted {indicator(of.key, predicted)}</span>}
      </div>
    </figure>
  );
}
