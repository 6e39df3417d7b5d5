import { usePartitions } from "../../api/clusterHooks";
import { useAcceleratorTypes, useModelTypes } from "../../api/hooks";
import { Panel } from "../../components/Panel";
import { StateGlyph } from "../../components/icons";
import { duration, integer, money, number, THIN, typeName } from "../../lib/format";
import type { JobFile } from "../../lib/jobFile";
import { useCluster } from "../../lib/liveContext";
import { askOf, curvesOf, optionsFor, roomFor, typesWithin, verdict, type Ask, type Option, type Room } from "../../lib/preview";
import { CurveChart } from "./CurveChart";
import css from "./submit.module.css";

const EN = "–";

function span(values: number[], show: (value: number) => string): string {
  if (values.length === 0) return EN;
  const low = show(Math.min(...values));
  const high = show(Math.max(...values));
  return low === high ? low : `${low}${EN}${high}`;
}

/** What can be known before submitting, and nothing more: no start is promised here. */
export function Preview({ file }: { file: JobFile }) {
  const accelerators = useAcceleratorTypes().data ?? [];
  const models = useModelTypes().data ?? [];
  const cluster = useCluster();
  const partitions = usePartitions().data ?? [];
  const ask = askOf(file, accelerators);
  const there = { ...ask, types: typesWithin(ask.types, cluster, partitions, file.partition) };
  const curves = curvesOf(file, models);
  const options = optionsFor(there, curves, accelerators);
  const room = roomFor(ask.types, cluster, partitions, file.partition);
  const queued = cluster?.tiles.queued ?? 0;
  const currency = accelerators[0]?.currency ?? "USD";
  return (
    <div className={css.right}>
      <Verdict ask={ask} room={room} queued={queued} options={options} currency={currency} />
      <CurvePanel curves={curves} ask={there} model={ask.model} />
      <OptionTable ask={ask} options={options} currency={currency} />
    </div>
  );
}

function Verdict({ ask, room, queued, options, currency }: { ask: Ask; room: Room; queued: number; options: Option[]; currency: string }) {
  const says = verdict(ask, room, queued);
  const costs = options.map((option) => option.cost).filter((cost): cost is number => cost !== null);
  return (
    <section className="panel" aria-label="What is known now">
      <div className={css.verdict}>
        <span className={`${css.badge} ${css[says.tone] ?? ""}`}><StateGlyph glyph={says.tone === "good" ? "play" : says.tone === "warn" ? "ring-dotted" : "octagon"} size={18} /></span>
        <div aria-live="polite">
          <h2>{says.title}</h2>
          <p>{says.text}</p>
        </div>
      </div>
      <div className="strip" style={{ borderTop: "1px solid var(--line)" }}>
        <Fig label="Free now" value={integer(room.free)} detail={`of ${integer(room.total)} allowed`} />
        <Fig label="In the queue" value={integer(queued + 1)} detail={queued === 0 ? "nothing ahead" : "last by arrival"} />
        <Fig label="Runs for" value={span(options.map((o) => o.seconds), duration)} detail={options.length === 0 ? "no curve known" : "waiting not counted"} />
        <Fig label="Costs" value={costs.length === 0 ? EN : `${money(Math.min(...costs), currency)}${Math.max(...costs) - Math.min(...costs) < 0.005 ? "" : `${EN}${money(Math.max(...costs), currency)}`}`} detail="at today's rates, before discounts" />
      </div>
    </section>
  );
}

function Fig({ label, value, detail }: { label: string; value: string; detail: string }) {
  return <div className="fig"><div className="l">{label}</div><div className="v">{value}</div><div className="d">{detail}</div></div>;
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

function OptionTable({ ask, options, currency }: { ask: Ask; options: Option[]; currency: string }) {
  if (options.length === 0) return null;
  const steps = ask.steps ?? 1;
  return (
    <Panel title="Time and cost" meta="if it kept that many GPUs throughout">
      <div className="tw" tabIndex={0}>
        <table className="t">
          <thead><tr><th scope="col">GPUs</th><th scope="col" className="ra">Steps/s</th><th scope="col" className="ra">Runs for</th><th scope="col" className="ra">Cost</th><th scope="col" className="ra">Per 1,000 steps</th></tr></thead>
          <tbody>
            {options.map((option) => (
              <tr key={`${option.type}/${option.gpus}`}>
                <td>always {option.gpus}{THIN}×{THIN}{typeName(option.type)}</td>
                <td className="ra">{number(option.steps_per_s)}</td>
                <td className="ra">{duration(option.seconds)}</td>
                <td className="ra">{option.cost === null ? EN : money(option.cost, currency)}</td>
                <td className="ra">{option.cost === null ? EN : money((option.cost / steps) * 1000, currency)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </Panel>
  );
}
