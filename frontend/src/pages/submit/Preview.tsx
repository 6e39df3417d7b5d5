import { useDebouncedValue } from "@mantine/hooks";
import type { ReactNode } from "react";
import { ApiError } from "../../api/client";
import { usePartitions } from "../../api/clusterHooks";
import { useAcceleratorTypes, useEstimate, useModelTypes } from "../../api/hooks";
import type { Estimate } from "../../api/types";
import { Fault, Panel, Skeleton } from "../../components/Panel";
import { StateGlyph } from "../../components/icons";
import { duration, integer, money, number, THIN, typeName } from "../../lib/format";
import type { JobFile } from "../../lib/jobFile";
import { useCluster } from "../../lib/liveContext";
import { askOf, costBasis, curvesOf, roomFor, typesWithin, verdict, type Ask, type Room } from "../../lib/preview";
import { CurveChart } from "./CurveChart";
import css from "./submit.module.css";

const EN = "–";

function span(values: number[], show: (value: number) => string): string {
  if (values.length === 0) return EN;
  const low = show(Math.min(...values));
  const high = show(Math.max(...values));
  return low === high ? low : `${low}${EN}${high}`;
}

const SETTLES_MS = 400;

/** What can be known before submitting, and nothing more: no start is promised here. */
export function Preview({ file }: { file: JobFile }) {
  const accelerators = useAcceleratorTypes().data ?? [];
  const models = useModelTypes().data ?? [];
  const cluster = useCluster();
  const partitions = usePartitions().data ?? [];
  const ask = askOf(file, accelerators);
  const there = { ...ask, types: typesWithin(ask.types, cluster, partitions, file.partition) };
  const curves = curvesOf(file, models);
  const [settled] = useDebouncedValue(file, SETTLES_MS);
  const estimate = useEstimate(settled);
  const old = settled !== file || estimate.isPlaceholderData;
  const room = roomFor(ask.types, cluster, partitions, file.partition);
  const queued = cluster?.tiles.queued ?? 0;
  return (
    <div className={css.right}>
      <Verdict ask={ask} room={room} queued={queued} estimate={estimate} old={old} />
      <CurvePanel curves={curves} ask={there} model={ask.model} />
      {estimate.data && <OptionTable estimate={estimate.data} old={old} />}
    </div>
  );
}

interface VerdictProps {
  ask: Ask;
  room: Room;
  queued: number;
  estimate: ReturnType<typeof useEstimate>;
  /** The file has changed since: a new answer is on its way. */
  old: boolean;
}

function Verdict({ ask, room, queued, estimate, old }: VerdictProps) {
  const { data } = estimate;
  const says = verdict(ask, room, queued, data);
  return (
    <section className={`panel ${old ? css.old : ""}`} aria-label="What is known now" aria-busy={old || estimate.isPending}>
      <div className={css.verdict}>
        <span className={`${css.badge} ${css[says.tone] ?? ""}`}><StateGlyph glyph={says.tone === "good" ? "play" : says.tone === "warn" ? "ring-dotted" : "octagon"} size={18} /></span>
        <div aria-live="polite">
          <h2>{says.title}</h2>
          <p>{says.text}</p>
        </div>
      </div>
      <div className={`strip ${css.figs}`}>
        <Fig label="Free now" value={integer(room.free)} detail={`of ${integer(room.total)} allowed`} />
        <Fig label="In the queue" value={integer(queued + 1)} detail={queued === 0 ? "nothing ahead" : "last by arrival"} />
        <Fig label="Runs for" className={css.runs} {...runsFor(data, estimate.isPending)} />
        <Fig label="Costs" className={css.costs} {...costs(data, estimate.isPending)} />
      </div>
      {estimate.error && <NoEstimate query={estimate} />}
    </section>
  );
}

interface Said {
  value: ReactNode;
  detail: string;
}

function runsFor(estimate: Estimate | undefined, pending: boolean): Said {
  if (!estimate) return { value: pending ? <Skeleton height={28} width={80} /> : EN, detail: pending ? "asking the portal" : "not known" };
  const known = estimate.options.length > 0;
  return { value: span(estimate.options.map((option) => option.duration_s), duration), detail: known ? "waiting not counted" : "no curve known" };
}

function costs(estimate: Estimate | undefined, pending: boolean): Said {
  if (!estimate) return { value: pending ? <Skeleton height={28} width={120} /> : EN, detail: pending ? "asking the portal" : "not known" };
  const amounts = estimate.options.map((option) => Number(option.amount));
  return { value: span(amounts, (amount) => money(amount, estimate.currency)), detail: costBasis(estimate) };
}

/** A file that is not whole yet is said quietly; what the portal itself could not do is a fault. */
function NoEstimate({ query }: { query: ReturnType<typeof useEstimate> }) {
  const wrong = query.error instanceof ApiError ? query.error.errors : [];
  if (wrong.length === 0) return <Fault what="The estimate" query={query} />;
  return <p className={`sub ${css.none}`} role="status">No estimate yet. {wrong.map((one) => `${one.field}: ${one.message}`).join("; ")}</p>;
}

function Fig({ label, value, detail, className = "" }: { label: string; className?: string | undefined } & Said) {
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

function OptionTable({ estimate, old }: { estimate: Estimate; old: boolean }) {
  const { options, currency } = estimate;
  if (options.length === 0) return null;
  return (
    <Panel title="Time and cost" meta="if it kept that many GPUs throughout">
      <div className={`tw ${old ? css.old : ""}`} tabIndex={0}>
        <table className={`t cards ${css.options}`}>
          <thead><tr><th scope="col">GPUs</th><th scope="col" className="ra">Steps/s</th><th scope="col" className="ra">Runs for</th><th scope="col" className="ra">Cost</th><th scope="col" className="ra">Per 1,000 steps</th></tr></thead>
          <tbody>
            {options.map((option) => (
              <tr key={`${option.type}/${option.gpus}`} title={option.basis}>
                <td className="wide">always {option.gpus}{THIN}×{THIN}{typeName(option.type)}</td>
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
