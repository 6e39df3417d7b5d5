import { useState } from "react";
import { Link, useNavigate } from "react-router";
import { useOpenRollout, useShadow } from "../../api/rolloutHooks";
import type { SimulationTrial } from "../../api/types";
import { AskDialog } from "../../components/AskDialog";
import { Panel } from "../../components/Panel";
import { PromoteDialog } from "./PromoteDialog";
import { Name } from "../../components/Name";
import { isolated } from "../../lib/isolated";

interface Asking {
  trial: SimulationTrial;
  what: "shadow" | "promote";
}

/** From a result into force: in the shadow first, or at once under guard. */
export function ToForce({ trials }: { trials: SimulationTrial[] }) {
  const open = useOpenRollout();
  const go = useNavigate();
  const shadow = useShadow();
  const [asking, setAsking] = useState<Asking | null>(null);
  if (trials.length === 0) return null;
  const close = () => { setAsking(null); shadow.reset(); };
  return (
    <Panel title="Apply" meta="first in the shadow, where nothing of it is done; promoted under guard, and rolled back by itself where a bound is broken">
      {open.data && <p className="empty">While <Link to={`/lab/rollouts/${open.data.id}`}><Name>{open.data.label}</Name></Link> is under way no other can be tried.</p>}
      <div className="tw" tabIndex={0}>
        <table className="t">
          <thead><tr><th scope="col">Policy</th><th scope="col" className="ra"><span className="vh">What to do with it</span></th></tr></thead>
          <tbody>
            {trials.map((trial) => (
              <tr key={trial.id}>
                <td style={{ fontWeight: 500, whiteSpace: "normal" }}><Name>{trial.label}</Name></td>
                <td className="ra">
                  <div style={{ display: "flex", gap: 8, justifyContent: "flex-end", flexWrap: "wrap", padding: "4px 0" }}>
                    <button type="button" className="btn sm" disabled={Boolean(open.data)} onClick={() => setAsking({ trial, what: "shadow" })}>Try in the shadow…<span className="vh"> <Name>{trial.label}</Name></span></button>
                    <button type="button" className="btn sm" disabled={Boolean(open.data)} onClick={() => setAsking({ trial, what: "promote" })}>Promote…<span className="vh"> <Name>{trial.label}</Name></span></button>
                  </div>
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {asking?.what === "shadow" && (
        <AskDialog title={`Try ${isolated(asking.trial.label)} in the shadow?`} keep="Not now" action="Try in the shadow" mild error={shadow.error} busy={shadow.isPending} onClose={close} onDo={() => shadow.mutate(asking.trial.id, { onSuccess: (made) => void go(`/lab/rollouts/${made.id}`) })}>
          From the next round on it decides what the live policy decides, on the same snapshot. What it would have done is kept and compared, and nothing of it is done. It does not see what its own decisions would have led to.
        </AskDialog>
      )}
      {asking?.what === "promote" && <PromoteDialog label={asking.trial.label} source={{ trial: asking.trial.id }} onClose={close} onDone={(made) => void go(`/lab/rollouts/${made.id}`)} />}
    </Panel>
  );
}
