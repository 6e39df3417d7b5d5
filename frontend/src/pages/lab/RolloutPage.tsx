import { useState } from "react";
import { Link, useParams } from "react-router";
import { usePolicy } from "../../api/hooks";
import { isOpen, useRollout, useRolloutStep, type Step } from "../../api/rolloutHooks";
import type { RolloutDetail } from "../../api/types";
import { AskDialog } from "../../components/AskDialog";
import { Loadable, Panel, SentenceWaits, Skeleton } from "../../components/Panel";
import { dateTime, moment } from "../../lib/format";
import { PHASE_CHIPS, PHASE_WORDS } from "../../lib/rolloutPhases";
import { stepWords } from "./rolloutWords";
import { show } from "../../lib/schemaForm";
import { TopBar } from "../../shell/TopBar";
import { GuardPanel } from "./GuardPanel";
import { PromoteDialog } from "./PromoteDialog";
import { ShadowPanel } from "./ShadowPanel";
import css from "./lab.module.css";
import { Name } from "../../components/Name";
import { isolated, sentenceOf } from "../../lib/isolated";

export default function RolloutPage() {
  const { id = "" } = useParams();
  const query = useRollout(id);
  const name = query.data ? `Rollout ${query.data.number}` : "Rollout";
  return (
    <>
      <TopBar title={name} crumb={<><Link to="/lab">Policy lab</Link><i>/</i>{name}</>} />
      <div className="page">
        {!query.data && !query.error && <SentenceWaits />}
        <Loadable query={query} what="The rollout" skeleton={<Skeleton height={40} count={3} />}>
          {(rollout) => <Known rollout={rollout} />}
        </Loadable>
      </div>
    </>
  );
}

function Known({ rollout }: { rollout: RolloutDetail }) {
  const shadowed = rollout.phase === "shadow" || rollout.phase === "cancelled" || rollout.shadow.rounds + rollout.shadow.failed > 0;
  return (
    <>
      <div style={{ display: "flex", gap: 12, alignItems: "flex-start", flexWrap: "wrap" }}>
        <h1 className="say" style={{ flex: "1 1 320px" }}><Sentence rollout={rollout} /> <span className={PHASE_CHIPS[rollout.phase]}>{PHASE_WORDS[rollout.phase]}</span></h1>
        <Actions rollout={rollout} />
      </div>
      {rollout.problem && <div className="fault" role="alert" style={{ margin: 0 }}>The last check could not be made, and is tried again: {sentenceOf(rollout.problem)}</div>}
      {rollout.promoted_at && <GuardPanel rollout={rollout} />}
      {shadowed && <ShadowPanel rollout={rollout} />}
      <What rollout={rollout} />
      <Steps rollout={rollout} />
    </>
  );
}

function Sentence({ rollout }: { rollout: RolloutDetail }) {
  const policy = usePolicy().data?.name;
  const since = moment(new Date(rollout.promoted_at ?? rollout.created_at), new Date());
  if (rollout.phase === "shadow") return <><b><Name>{rollout.label}</Name> decides in the shadow</b> of {policy ?? "the live policy"} since {since}. Nothing of it is done.</>;
  if (rollout.phase === "live") return <><b><Name>{rollout.label}</Name> is in force under guard</b> since {since}, until {rollout.guard_until && moment(new Date(rollout.guard_until), new Date())}. If a bound is broken, {rollout.previous?.policy} comes back by itself.</>;
  const by = rollout.ended_by ? ` By ${isolated(rollout.ended_by)}.` : rollout.promoted_at ? " By the portal itself." : "";
  const ended = rollout.ended_at ? ` ${dateTime(new Date(rollout.ended_at))}.` : "";
  const words = { kept: "stays in force", rolled_back: `was rolled back to ${rollout.previous?.policy}`, cancelled: "was taken out of the shadow", superseded: "was overtaken" }[rollout.phase];
  return <><b><Name>{rollout.label}</Name> {words}</b>.{rollout.phase === "cancelled" ? "" : ` ${sentenceOf(rollout.outcome)}`}{by}{ended}</>;
}

const QUESTIONS: Record<Step, { title: string; action: string; mild: boolean; text: (rollout: RolloutDetail) => string }> = {
  keep: { title: "Keep it now?", action: "Keep it", mild: true, text: (rollout) => `${isolated(rollout.label)} stays in force and is watched no longer.` },
  "roll-back": { title: "Roll back now?", action: "Roll back", mild: false, text: (rollout) => `From the next round on ${rollout.previous?.policy} decides again, with the parameters that it had. Running jobs keep their GPUs until then.` },
  cancel: { title: "Take it out of the shadow?", action: "Take it out", mild: true, text: () => "The shadow evaluation has ended. Its decisions stay here." },
};

function Actions({ rollout }: { rollout: RolloutDetail }) {
  const step = useRolloutStep();
  const [asking, setAsking] = useState<Step | "promote" | null>(null);
  if (!isOpen(rollout)) return null;
  const question = asking && asking !== "promote" ? QUESTIONS[asking] : null;
  const close = () => { setAsking(null); step.reset(); };
  return (
    <div className={css.line} style={{ padding: 0 }}>
      {rollout.phase === "shadow" && <button type="button" className="btn pri" onClick={() => setAsking("promote")}>Promote…</button>}
      {rollout.phase === "shadow" && <button type="button" className="btn" onClick={() => setAsking("cancel")}>Take out of the shadow</button>}
      {rollout.phase === "live" && <button type="button" className="btn" onClick={() => setAsking("keep")}>Keep now</button>}
      {rollout.phase === "live" && <button type="button" className="btn bad" onClick={() => setAsking("roll-back")}>Roll back now</button>}
      {asking === "promote" && <PromoteDialog label={rollout.label} source={{ rollout: rollout.id }} onClose={close} onDone={close} />}
      {question && asking && asking !== "promote" && (
        <AskDialog title={question.title} keep="Leave it" action={question.action} mild={question.mild} error={step.error} busy={step.isPending} onClose={close} onDo={() => step.mutate({ id: rollout.id, step: asking }, { onSuccess: close })}>
          {question.text(rollout)}
        </AskDialog>
      )}
    </div>
  );
}

function What({ rollout }: { rollout: RolloutDetail }) {
  const words = (parameters: Record<string, unknown>) => Object.entries(parameters).filter(([, value]) => value !== null).map(([key, value]) => `${key} ${show(value)}`).join(", ") || "none";
  return (
    <Panel title="Policies">
      <div className="tw" tabIndex={0}>
        <table className="t cards">
          <thead><tr><th scope="col"><span className="vh">Which</span></th><th scope="col">Policy</th><th scope="col">Parameters</th></tr></thead>
          <tbody>
            <tr><td className="wide">{rollout.promoted_at ? "Promoted" : "In the shadow"}</td><td data-l="Policy" className="mono">{rollout.policy}</td><td className="whole" data-l="Parameters" style={{ whiteSpace: "normal" }}>{words(rollout.parameters)}</td></tr>
            {rollout.previous && <tr><td className="wide">Before it</td><td data-l="Policy" className="mono">{rollout.previous.policy}</td><td className="whole" data-l="Parameters" style={{ whiteSpace: "normal" }}>{words(rollout.previous.parameters)}</td></tr>}
          </tbody>
        </table>
      </div>
      {rollout.simulation && <p className="pb sub">Its prediction is of <Link to={`/lab/${rollout.simulation.id}`}><Name>{rollout.simulation.name || `simulation ${rollout.simulation.number}`}</Name></Link>.</p>}
    </Panel>
  );
}

function Steps({ rollout }: { rollout: RolloutDetail }) {
  return (
    <Panel title="Steps" meta="from the audit log" right={<Link to={`/admin/audit?target=rollout+${rollout.number}`} className="btn sm">Audit log</Link>}>
      <div className="tw" tabIndex={0}>
        <table className="t cards">
          <thead><tr><th scope="col">When</th><th scope="col">Step</th><th scope="col">By</th><th scope="col">Why</th></tr></thead>
          <tbody>
            {rollout.steps.map((step) => (
              <tr key={`${step.at}/${step.action}`}>
                <td className="wide">{dateTime(new Date(step.at))}</td>
                <td data-l="Step">{stepWords(step.action)}</td>
                <td data-l="By"><Name>{step.by ?? "the portal itself"}</Name></td>
                <td className="whole" data-l="Why" style={{ whiteSpace: "normal" }}>{sentenceOf(step.why ?? "–")}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </Panel>
  );
}
