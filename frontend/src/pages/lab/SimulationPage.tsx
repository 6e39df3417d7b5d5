import { useState } from "react";
import { Link, useNavigate, useParams } from "react-router";
import { url } from "../../api/client";
import { useCancelSimulation, useRemoveSimulation, useRerunSimulation, useSimulation } from "../../api/labHooks";
import type { Simulation } from "../../api/types";
import { AskDialog } from "../../components/AskDialog";
import { Icon } from "../../components/icons";
import { Loadable, Panel, SentenceWaits, Skeleton } from "../../components/Panel";
import { count, dateTime } from "../../lib/format";
import { firstTrials, progressWords, STATE_CHIPS, STATE_WORDS, workloadWords } from "./lab";
import { TopBar } from "../../shell/TopBar";
import { Progress } from "./Progress";
import { Results } from "./Results";
import css from "./lab.module.css";
import { sentenceOf } from "../../lib/isolated";
import { Name } from "../../components/Name";

export default function SimulationPage({ admin }: { admin: boolean }) {
  const { id = "" } = useParams();
  const query = useSimulation(id);
  const name = query.data ? query.data.name || `Simulation ${query.data.number}` : "Simulation";
  return (
    <>
      <TopBar title={name} crumb={<><Link to="/lab">Policy lab</Link><i>/</i><bdi>{name}</bdi></>} />
      <div className="page">
        {!query.data && !query.error && <SentenceWaits />}
        <Loadable query={query} what="The simulation" skeleton={<Skeleton height={40} count={3} />}>
          {(simulation) => <Known simulation={simulation} admin={admin} />}
        </Loadable>
      </div>
    </>
  );
}

function Known({ simulation, admin }: { simulation: Simulation; admin: boolean }) {
  const open = simulation.state === "queued" || simulation.state === "running";
  const policies = new Set(simulation.trials.filter((trial) => trial.role === "candidate").map((trial) => trial.label)).size;
  const done = firstTrials(simulation);
  return (
    <>
      <div style={{ display: "flex", gap: 12, alignItems: "flex-start", flexWrap: "wrap" }}>
        <h1 className="say grow">
          <b>{workloadWords(simulation)} under {count(policies, "policy", "policies")}</b>, asked for by <Name>{simulation.created_by}</Name> on {dateTime(new Date(simulation.created_at))}. <span className={STATE_CHIPS[simulation.state]}>{STATE_WORDS[simulation.state]}</span>
        </h1>
        <Actions simulation={simulation} open={open} />
      </div>
      {simulation.reason && <div className="fault" role={simulation.state === "failed" ? "alert" : "status"} style={{ margin: 0 }}>{sentenceOf(simulation.reason)}</div>}
      {open && (
        <Panel title="Under way">
          <div className="pb" style={{ display: "grid", gap: 8 }} aria-live="polite">
            <Progress simulation={simulation} />
            <span className="sub">{progressWords(simulation)} Results appear when all are done; you may leave this page.</span>
          </div>
        </Panel>
      )}
      {!open && done.length === 0 && simulation.state !== "failed" && <p className="empty">No trial had finished. Run it again to see results.</p>}
      {!open && done.length > 0 && <Results simulation={simulation} trials={done} admin={admin} />}
    </>
  );
}

function Actions({ simulation, open }: { simulation: Simulation; open: boolean }) {
  const go = useNavigate();
  const cancel = useCancelSimulation();
  const rerun = useRerunSimulation();
  const remove = useRemoveSimulation();
  const [asking, setAsking] = useState(false);
  const [copied, setCopied] = useState(false);
  const copy = () => void navigator.clipboard.writeText(window.location.href.split("?")[0] ?? "").then(() => setCopied(true));
  const fault = cancel.error ?? rerun.error;
  return (
    <div className={css.line} style={{ padding: 0 }}>
      {open && <button type="button" className="btn" disabled={cancel.isPending} onClick={() => cancel.mutate(simulation.id)}>Cancel</button>}
      {!open && <button type="button" className="btn" disabled={rerun.isPending} onClick={() => rerun.mutate(simulation.id, { onSuccess: (made) => void go(`/lab/${made.id}`) })}><Icon name="again" size={14} />Run again</button>}
      {simulation.state === "succeeded" && (["csv", "json"] as const).map((format) => (
        <a key={format} className="btn" href={url(`simulations/${simulation.id}/export`, { format })} download><Icon name="download" size={14} />{format.toUpperCase()}</a>
      ))}
      <button type="button" className="btn" onClick={copy}><Icon name={copied ? "check" : "copy"} size={14} />{copied ? "Copied" : "Copy link"}</button>
      {!open && <button type="button" className="btn bad" onClick={() => setAsking(true)}>Delete</button>}
      {fault && <div className="fault" role="alert" style={{ margin: 0 }}>{fault.message}</div>}
      {asking && (
        <AskDialog title="Delete this simulation?" keep="Keep it" action="Delete" error={remove.error} busy={remove.isPending} onClose={() => setAsking(false)} onDo={() => remove.mutate(simulation.id, { onSuccess: () => void go("/lab") })}>
          Its results go with it. This cannot be undone.
        </AskDialog>
      )}
    </div>
  );
}
