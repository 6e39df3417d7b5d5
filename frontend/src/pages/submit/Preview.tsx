import { useDebouncedValue } from "@mantine/hooks";
import { useState, type ReactNode } from "react";
import { ApiError } from "../../api/client";
import { useOfferedPartitions, useOfferedTypes } from "../../api/offerHooks";
import { hasProgram, useForecast, useModelTypes, usePreview } from "../../api/hooks";
import type { Estimate, Forecast, JobPreview } from "../../api/types";
import { CurveChart } from "../../components/CurveChart";
import { StateGlyph } from "../../components/icons";
import { After, Fault, Panel, Skeleton } from "../../components/Panel";
import { WhatIfPanel } from "../../components/WhatIfPanel";
import { useNow } from "../../lib/clock";
import { startWords } from "../../lib/job/expectedStart";
import { clock, duration, gangWords, moment, momentRange, money, number } from "../../lib/format";
import type { JobFile } from "../../lib/jobfile/jobFile";
import { useCluster } from "../../lib/live/liveContext";
import { askOf, costBasis, curvesOf, isOf, typesWithin, verdictOf, type Ask } from "../../lib/jobfile/preview";
import { EffectPanel } from "./EffectPanel";
import css from "./submit.module.css";
import { sentenceOf } from "../../lib/isolated";

const EN = "–";
const SETTLES_MS = 400;
const GLYPHS = { good: "play", warn: "ring-dotted", bad: "octagon" } as const;

function span(values: number[], show: (value: number) => string): string {
  if (values.length === 0) return EN;
  const low = show(Math.min(...values));
  const high = show(Math.max(...values));
  return low === high ? low : `${low}${EN}${high}`;
}

/** What the scheduler would do with the job, and to others, before it is submitted. */
export function Preview({ file }: { file: JobFile }) {
  const accelerators = useOfferedTypes(file.cluster);
  const models = useModelTypes().data ?? [];
  const cluster = useCluster();
  const partitions = useOfferedPartitions(file.cluster);
  const ask = askOf(file, accelerators);
  const there = { ...ask, types: typesWithin(ask.types, isOf(cluster, file.cluster), partitions, file.partition) };
  const [settled] = useDebouncedValue(file, SETTLES_MS);
  const query = usePreview(settled);
  const old = settled !== file || query.isPlaceholderData;
  const blank = !hasProgram(settled);
  const preview = blank ? undefined : query.data;
  const asked = useForecast(old ? null : (preview?.forecast ?? null));
  const forecast = useLatest(settled, asked.data ?? null, old ? undefined : preview);
  return (
    <div className={css.right}>
      <section className={`panel ${old ? css.old : ""}`} aria-label="What it would do" aria-busy={old || (!blank && query.isPending)}>
        {preview && <Said preview={preview} share={ask.sharePercent} forecast={forecast} pending={preview.forecast !== null && forecast === null && asked.error === null} />}
        {!preview && !blank && query.isPending && <div className="pb"><Skeleton height={28} count={4} /></div>}
        {blank && <p className="empty">Choose a program to see what the job would do.</p>}
        {!blank && query.error && <NoPreview query={query} />}
      </section>
      <After until={[query]}>
        {preview && <EffectPanel preview={preview} forecast={forecast} old={old} />}
        <CurvePanel curves={curvesOf(file, models)} ask={there} model={ask.model} />
        {preview && <WhatIfPanel of={settled} disabled={old} />}
        {preview && <OptionTable estimate={preview.estimate} share={ask.sharePercent} old={old} />}
      </After>
    </div>
  );
}

/** The forecast of this file: that of the preview before stands until the next one's is there, of another file none does. */
function useLatest(file: JobFile, found: Forecast | null, preview: JobPreview | undefined): Forecast | null {
  const [kept, setKept] = useState<{ file: JobFile; forecast: Forecast | null }>({ file, forecast: null });
  if (found !== null && kept.forecast !== found) setKept({ file, forecast: found });
  if (preview !== undefined && preview.forecast === null) return null;
  return found ?? (kept.file === file ? kept.forecast : null);
}

function Said({ preview, share, forecast, pending }: { preview: JobPreview; share: number; forecast: Forecast | null; pending: boolean }) {
  const now = useNow();
  const says = verdictOf(preview, forecast?.start ?? null, now);
  const ends = endFigs(preview, forecast, pending, now);
  return (
    <>
      <div className={css.verdict}>
        <span className={`${css.badge} ${css[says.tone] ?? ""}`}><StateGlyph glyph={GLYPHS[says.tone]} size={18} /></span>
        <div aria-live="polite">
          <h2>{says.title}</h2>
          {preview.cluster.choice && <p>{sentenceOf(preview.cluster.choice)}</p>}
          {preview.warnings.map((text) => <p key={text} className="fault warn" role="note" style={{ margin: 0 }}>{sentenceOf(text)}</p>)}
          <p>{sentenceOf(preview.reason.text)} {sentenceOf(preview.would_change ?? "")} {preview.prepares && "Its code and environment are made ready first; it queues after that."}</p>
        </div>
        <p className={`sub ${css.asof}`}>By the policy in force, as of {clock(new Date(preview.as_of), true)}</p>
      </div>
      <div className={`strip ${css.figs}`}>
        <Fig label="Starts" {...startFig(preview, forecast, pending, now)} />
        <Fig label="On" {...gangFig(preview, share, forecast)} />
        <Fig label="Runs for" {...ends.runs} />
        <Fig label="Ends" {...ends.end} />
        <Fig label="Costs" className={css.costs} {...ends.cost} />
      </div>
    </>
  );
}

interface Told {
  value: ReactNode;
  detail: ReactNode;
}

const WAITING: Told = { value: <Skeleton height={28} width={80} />, detail: "replaying the queue" };

function startFig({ verdict }: JobPreview, forecast: Forecast | null, pending: boolean, now: Date): Told {
  if (verdict === "now") return { value: "now", detail: "the next round" };
  if (pending) return WAITING;
  const { p10_at: low, p50_at: likely, p90_at: high } = forecast?.start ?? { p10_at: null, p50_at: null, p90_at: null };
  if (!forecast || !low || !likely || !high) return { value: EN, detail: forecast?.start.reason?.text ?? (verdict === "never" ? "it does not" : "not worked out") };
  return { value: moment(new Date(likely), now), detail: <span title={startWords(forecast.start, now)?.basis}>{momentRange(new Date(low), new Date(high), now)}</span> };
}

function gangFig({ allocation }: JobPreview, share: number, forecast: Forecast | null): Told {
  const gang = allocation ?? forecast?.gang;
  if (!gang) return { value: EN, detail: "" };
  const nodes = allocation ? [...new Set(allocation.gpus.map((gpu) => gpu.node))] : [];
  const where = nodes.length > 2 ? `${nodes.length} nodes` : nodes.join(", ");
  const detail = allocation ? `${where}${allocation.from_others ? ", left by others" : ""}` : "most likely";
  return { value: gangWords({ ...gang, share_percent: share }), detail };
}

/** From the forecast once it is there; before that, and without one, the bounds of all that it could have. */
function endFigs({ estimate }: JobPreview, forecast: Forecast | null, pending: boolean, now: Date): { runs: Told; end: Told; cost: Told } {
  const { options, currency } = estimate;
  const known = options.length > 0;
  const end = forecast?.end;
  const cost = forecast?.cost;
  const basis = costBasis(estimate);
  return {
    runs: end ? { value: duration(end.duration_s), detail: "if it keeps those" } : { value: span(options.map((option) => option.duration_s), duration), detail: known ? "by its GPUs" : "no curve known" },
    end: end
      ? { value: moment(new Date(end.at), now), detail: momentRange(new Date(end.low_at), new Date(end.high_at), now) }
      : pending ? WAITING : { value: EN, detail: known ? "not foreseen" : "no curve known" },
    cost: cost
      ? { value: money(cost.amount, currency), detail: `${money(cost.low, currency)}${EN}${money(cost.high, currency)}, ${basis}` }
      : { value: span(options.map((option) => Number(option.amount)), (amount) => money(amount, currency)), detail: basis },
  };
}

/** A file that is not whole yet is said quietly; what the portal itself could not do is a fault. */
function NoPreview({ query }: { query: ReturnType<typeof usePreview> }) {
  const wrong = query.error instanceof ApiError ? query.error.errors : [];
  if (wrong.length === 0) return <Fault what="The preview" query={query} />;
  return <p className={`sub ${css.none}`} role="status">No preview yet. {wrong.map((one) => `${one.field}: ${one.message}`).join("; ")}</p>;
}

function Fig({ label, value, detail, className = "" }: { label: string; className?: string | undefined } & Told) {
  return <div className={`fig ${className}`}><div className="l">{label}</div><div className="v">{value}</div><div className="d">{detail}</div></div>;
}

function CurvePanel({ curves, ask, model }: { curves: ReturnType<typeof curvesOf>; ask: Ask; model: string | null }) {
  const shown = curves.filter((curve) => ask.types.includes(curve.type));
  return (
    <Panel
      title="Throughput by GPUs" meta={`steps/s${model ? `, ${model}` : ""}`}
      right={shown.length > 0 && (
        <span className="legend">
          <span><svg width="20" height="4" aria-hidden><path d="M0 2H20" stroke="var(--ink)" strokeWidth="2" /></svg>measured</span>
          <span><svg width="20" height="4" aria-hidden><path d="M0 2H20" stroke="var(--ink-2)" strokeWidth="2" strokeDasharray="4 3" /></svg>estimated</span>
        </span>
      )}
    >
      {shown.length === 0 ? (
        <p className="empty">{model ? "The catalogue has no curve of this program on the types allowed." : "Nothing is known of this command yet."} A short trial measures it when it starts.</p>
      ) : <div className="pb"><CurveChart curves={shown} ask={ask} /></div>}
    </Panel>
  );
}

function OptionTable({ estimate, share, old }: { estimate: Estimate; share: number; old: boolean }) {
  const { options, currency } = estimate;
  if (options.length === 0) return null;
  return (
    <Panel title="Time and cost" meta={share < 100 ? "if it kept that part throughout" : "if it kept that many GPUs throughout"}>
      <div className={`tw ${old ? css.old : ""}`} tabIndex={0}>
        <table className={`t cards ${css.options}`}>
          <thead><tr><th scope="col">GPUs</th><th scope="col" className="ra">Steps/s</th><th scope="col" className="ra">Runs for</th><th scope="col" className="ra">Cost</th><th scope="col" className="ra">Per 1,000 steps</th></tr></thead>
          <tbody>
            {options.map((option) => (
              <tr key={`${option.type}/${option.gpus}`} title={option.basis}>
                <td className="wide">always {gangWords({ type: option.type, count: option.gpus, share_percent: share })}</td>
                <td className="ra" data-l="Steps/s">{number(option.steps_per_s)}</td>
                <td className="ra" data-l="Runs for">{duration(option.duration_s)}</td>
                <td className="ra" data-l="Cost">{money(option.amount, currency)}</td>
                <td className="ra" data-l="Per 1,000 steps">{money((Number(option.amount) / (option.duration_s * option.steps_per_s)) * 1000, currency)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </Panel>
  );
}
