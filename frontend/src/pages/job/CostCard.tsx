import type { UseQueryResult } from "@tanstack/react-query";
import type { JobCost, JobDetail } from "../../api/types";
import { Loadable, Panel, Skeleton } from "../../components/Panel";
import { money, number, percent, typeName, withUnit } from "../../lib/format";
import { hasEnded } from "../../lib/job/jobState";
import css from "./job.module.css";

/** Parts of the whole width, 0 to 1. */
interface CostMeter {
  soFar: number;
  estimated: number;
  limit: number | null;
}

/** What is spent against the limit, or against what the job is expected to cost; without either there is nothing to measure it by. */
export function costMeter(soFar: number, estimated: number | null, limit: number | null): CostMeter | null {
  if (limit === null && estimated === null) return null;
  const end = Math.max(estimated ?? 0, soFar);
  const whole = Math.max(limit ?? 0, end, 1e-9) * (limit === null ? 1.08 : 1);
  return { soFar: soFar / whole, estimated: end / whole, limit: limit === null ? null : limit / whole };
}

function limitOf(job: JobDetail): number | null {
  const limit = Number(job.spec.max_cost ?? NaN);
  return Number.isFinite(limit) && limit > 0 ? limit : null;
}

export function CostCard({ job, query }: { job: JobDetail; query: UseQueryResult<JobCost> }) {
  const limit = limitOf(job);
  const currency = query.data?.currency ?? job.cost?.currency ?? "USD";
  return (
    <Panel title="Cost" right={<span className="sub">{limit === null ? "no limit" : `limit ${money(limit, currency)}`}</span>}>
      <Loadable query={query} what="The cost" skeleton={<Skeleton height={18} count={4} />}>
        {(cost) => (
          <div className="pb">
            <div className={css.big}>
              {money(cost.so_far, cost.currency)}
              {!hasEnded(job.state) && cost.estimated !== null && <small>of about {money(cost.estimated, cost.currency)} at the end</small>}
            </div>
            <Meter cost={cost} limit={limit} ended={hasEnded(job.state)} />
            <Lines cost={cost} ended={hasEnded(job.state)} />
          </div>
        )}
      </Loadable>
    </Panel>
  );
}

function Meter({ cost, limit, ended }: { cost: JobCost; limit: number | null; ended: boolean }) {
  const found = costMeter(Number(cost.so_far), ended || cost.estimated === null ? null : Number(cost.estimated), limit);
  if (!found) return null;
  const share = (part: number) => `${part * 100}%`;
  return (
    <div className={css.meter} aria-hidden>
      <i style={{ width: share(found.estimated), background: "var(--line-2)" }} />
      <i style={{ width: share(found.soFar), background: "var(--ink-2)" }} />
      {found.limit !== null && <u style={{ left: `calc(${share(found.limit)} - 1.5px)` }} />}
    </div>
  );
}

function Lines({ cost, ended }: { cost: JobCost; ended: boolean }) {
  const lost = cost.lost_to_restarts === null ? null : Number(cost.lost_to_restarts);
  const sofar = Number(cost.so_far);
  const rest = cost.estimated === null ? null : Number(cost.estimated) - sofar;
  const range = cost.estimated_low !== null && cost.estimated_high !== null
    ? `, in all ${money(cost.estimated_low, cost.currency)}–${money(cost.estimated_high, cost.currency)}` : "";
  return (
    <dl>
      {cost.by_type.map((entry) => [
        <dt key={entry.type}>Allocated</dt>,
        <dd key={`${entry.type}-amount`}>{withUnit(number(Number(entry.gpu_hours)), "GPU-hours")} of {typeName(entry.type)}, {money(entry.amount, cost.currency)}</dd>,
      ])}
      {cost.used_gpu_hours !== null && (
        <>
          <dt>GPUs busy</dt>
          <dd title={`Of ${withUnit(number(cost.measured_gpu_hours), "GPU-hours")} it is known`}>
            {withUnit(number(cost.used_gpu_hours), "GPU-hours")}, {percent(cost.used_gpu_hours / cost.measured_gpu_hours)}{cost.utilisation !== null && `, ${percent(cost.utilisation)} now`}
            {cost.emulated && <span className="chip o" style={{ marginLeft: 6 }}>emulated</span>}
          </dd>
        </>
      )}
      {!ended && cost.price_per_hour !== null && <><dt>Price</dt><dd>{cost.price_per_gpu_hour !== null && `${money(cost.price_per_gpu_hour, cost.currency)} per GPU-hour, `}{money(cost.price_per_hour, cost.currency)}/h now</dd></>}
      {!ended && rest !== null && <><dt>To come</dt><dd>{money(Math.max(0, rest), cost.currency)}{range}</dd></>}
      {lost !== null && <><dt>Lost to restarts</dt><dd>{money(lost, cost.currency)}{sofar > 0 && `, ${percent(lost / sofar)} of the cost`}</dd></>}
      {!ended && cost.basis && <><dt>Estimated from</dt><dd>{cost.basis}</dd></>}
    </dl>
  );
}
