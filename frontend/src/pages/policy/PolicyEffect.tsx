import type { UseQueryResult } from "@tanstack/react-query";
import { ApiError } from "../../api/client";
import type { PolicyPreview } from "../../api/types";
import { EffectFoot, EffectHead, EffectRow } from "../../components/EffectRow";
import { Fault, Panel, Skeleton } from "../../components/Panel";
import { clock } from "../../lib/format";
import { sentence } from "./effectWords";
import css from "./policy.module.css";

const MOST = 10;

/** What the next round would do by this policy and not by the one in force, before anybody applies it. */
export function PolicyEffect({ query, old }: { query: UseQueryResult<PolicyPreview>; old: boolean }) {
  const wrong = query.error instanceof ApiError && query.error.errors.length > 0 ? query.error : null;
  return (
    <Panel title="Effect on the present queue" meta="the next round, against the policy in force" right={query.data && <span className="sub">as of {clock(new Date(query.data.as_of), true)}</span>}>
      {query.error && !wrong && <Fault what="The effect" query={query} />}
      {wrong && <p className="empty" role="status">{wrong.message}</p>}
      {!query.data && query.isPending && <div className="pb"><Skeleton height={20} count={3} /></div>}
      {query.data && !query.error && <div className={old ? css.old : ""} aria-busy={old}><Told effect={query.data} /></div>}
    </Panel>
  );
}

function Told({ effect }: { effect: PolicyPreview }) {
  const { effects, affected } = effect;
  return (
    <div aria-live="polite">
      <p className="pb">{sentence(effect)}</p>
      {affected > 0 && (
        <div className="tw" tabIndex={0}>
          <table className="t cards">
            <EffectHead />
            <tbody>{effects.slice(0, MOST).map((one) => <EffectRow key={one.job.number} effect={one} />)}</tbody>
          </table>
        </div>
      )}
      <EffectFoot hidden={affected - Math.min(affected, MOST)} spread={effect.variance} className={css.under} />
    </div>
  );
}
