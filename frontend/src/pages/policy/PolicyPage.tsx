import { useState } from "react";
import { useIdleRule, usePolicies, usePolicy, usePolicyHistory, useUndoPolicy } from "../../api/hooks";
import type { PolicyChange, PolicyInForce, PolicyInfo } from "../../api/types";
import { After, Fault, Loadable, Panel, SentenceWaits, Skeleton } from "../../components/Panel";
import { Icon } from "../../components/icons";
import { OpenRollout } from "../../components/OpenRollout";
import { dateTime, integer, moment } from "../../lib/format";
import { show } from "../../lib/schemaForm";
import { useCluster } from "../../lib/live/liveContext";
import { TopBar } from "../../shell/TopBar";
import { IdleRulePanel } from "./IdleRuleForm";
import { PolicyForm } from "./PolicyForm";
import css from "./policy.module.css";

export default function PolicyPage() {
  const policies = usePolicies();
  const policy = usePolicy();
  const rule = useIdleRule();
  const [chosen, setChosen] = useState<string | null>(null);
  const name = chosen ?? policy.data?.name;
  const kind = policies.data?.find((entry) => entry.name === name);
  return (
    <>
      <TopBar title="Policy" />
      <div className="page">
        <OpenRollout />
        {policy.isPending ? <SentenceWaits /> : policy.data && <Opening policy={policy.data} />}
        {policy.error && !policy.data && <Fault what="The policy" query={policy} />}
        <div className={`cols ${css.body}`}>
          <Panel title="Policies" meta="one decides for the whole cluster">
            <Loadable query={policies} what="The list of policies" skeleton={<Skeleton height={52} count={4} />}>
              {(list) => (
                <div className={css.choices} role="radiogroup" aria-label="Policy">
                  {list.map((entry) => <Choice key={entry.name} policy={entry} chosen={entry.name === name} inForce={entry.name === policy.data?.name} onChoose={() => setChosen(entry.name)} />)}
                </div>
              )}
            </Loadable>
          </Panel>
          <div className={css.stack}>
            {kind && policy.data && <PolicyForm key={`${kind.name}/${policy.data.changed_at ?? ""}`} kind={kind} inForce={policy.data} onApplied={() => setChosen(null)} />}
            {policy.data && policy.data.notes.length > 0 && (
              <Panel title="Notes" meta="for the jobs of now">
                <ul className={css.notes}>{policy.data.notes.map((note) => <li key={note}>{note}</li>)}</ul>
              </Panel>
            )}
            <After until={[policies, policy, rule]}>
              <IdleRulePanel />
              <Changes />
            </After>
          </div>
        </div>
      </div>
    </>
  );
}

function Opening({ policy }: { policy: PolicyInForce }) {
  const undo = useUndoPolicy();
  const round = useCluster()?.cluster.round ?? null;
  const pending = policy.effective_round !== null && round !== null && policy.effective_round > round;
  const when = policy.changed_at ? `since ${moment(new Date(policy.changed_at), new Date())}${policy.changed_by ? ` by ${policy.changed_by}` : ""}` : "since the cluster was made";
  return (
    <div style={{ display: "flex", gap: 12, alignItems: "flex-start", flexWrap: "wrap" }}>
      <h1 className="say grow">
        <b className="mono" style={{ fontSize: 14 }}>{policy.name}</b> decides {when}.{pending ? ` It takes effect at round ${integer(policy.effective_round ?? 0)}.` : ""} A change holds from the next round on; running jobs keep their GPUs until then.
      </h1>
      {policy.can_undo && (
        <button type="button" className="btn" disabled={undo.isPending} onClick={() => undo.mutate()}><Icon name="undo" size={14} />Undo the last change</button>
      )}
      {undo.error && <div className="fault" role="alert" style={{ margin: 0 }}>{undo.error.message}</div>}
    </div>
  );
}

function Choice({ policy, chosen, inForce, onChoose }: { policy: PolicyInfo; chosen: boolean; inForce: boolean; onChoose: () => void }) {
  return (
    <button type="button" role="radio" aria-checked={chosen} className={`card ${css.choice}`} onClick={onChoose}>
      <span className={css.name}>{policy.title} {inForce && <span className="chip">in force</span>}{policy.elastic && <span className="chip o">elastic</span>}</span>
      <small className="mono">{policy.name}</small>
      <small>{policy.description.split("\n\n")[0]}</small>
    </button>
  );
}

function Changes() {
  const query = usePolicyHistory();
  return (
    <Panel title="Changes" meta="newest first">
      <Loadable query={query} what="The history" skeleton={<Skeleton height={24} count={3} />}>
        {(changes) => changes.length === 0 ? <p className="empty">The policy has not been changed yet.</p> : (
          <div className="tw" tabIndex={0}>
            <table className="t">
              <thead><tr><th scope="col">When</th><th scope="col">Policy</th><th scope="col">Parameters</th><th scope="col">By</th></tr></thead>
              <tbody>{changes.slice(0, 20).map((change) => <ChangeRow key={change.id} change={change} />)}</tbody>
            </table>
          </div>
        )}
      </Loadable>
    </Panel>
  );
}

function ChangeRow({ change }: { change: PolicyChange }) {
  const at = new Date(change.changed_at);
  const parameters = Object.entries(change.parameters).filter(([, value]) => value !== null && value !== "").map(([key, value]) => `${key} ${show(value)}`).join(", ");
  return (
    <tr>
      <td title={dateTime(at)}>{moment(at, new Date())}</td>
      <td className="mono" style={{ fontSize: 12 }}>{change.name}{change.undone && <span className="chip" style={{ marginLeft: 6 }}>undone</span>}</td>
      <td style={{ whiteSpace: "normal", fontSize: 12, lineHeight: "16px", paddingTop: 6, paddingBottom: 6 }}>{parameters || "–"}</td>
      <td>{change.changed_by ?? <span className="sub">the portal</span>}</td>
    </tr>
  );
}
