import { useId, useState } from "react";
import { ApiError } from "../../api/client";
import { usePolicies } from "../../api/hooks";
import { useReplay } from "../../api/roundHooks";
import type { PolicyInfo, Replay, ReplayedJob, RoundDetail } from "../../api/types";
import { JobRef } from "../../components/JobRef";
import { ParameterField } from "../../components/ParameterField";
import { Loadable, Panel, Skeleton } from "../../components/Panel";
import { Choice } from "../../components/TextField";
import { number, preciseDuration } from "../../lib/format";
import { fieldsOf } from "../../lib/schemaForm";
import { CHANGE_CHIPS, CHANGE_WORDS, figureName, gangText, replayWords } from "./rounds";
import { Board } from "./Board";
import css from "./lab.module.css";

/** The round planned again, under the same policy or another. */
export function ReplayPanel({ round }: { round: RoundDetail }) {
  const policies = usePolicies();
  return (
    <Panel title="Run again under…" meta="on what this round saw; nothing changes by it">
      <Loadable query={policies} what="The list of policies" skeleton={<Skeleton height={40} count={2} />}>
        {(kinds) => <Form round={round} kinds={kinds} />}
      </Loadable>
    </Panel>
  );
}

function Form({ round, kinds }: { round: RoundDetail; kinds: PolicyInfo[] }) {
  const [name, setName] = useState(round.policy);
  const kind = kinds.find((entry) => entry.name === name);
  return (
    <>
      <div className={css.line} style={{ paddingTop: 12 }}>
        <Choice label="Policy" value={name} options={kinds.map((entry) => [entry.name, `${entry.title}${entry.name === round.policy ? " (of the round)" : ""}`])} onChange={setName} />
      </div>
      {kind && <Parameters key={name} round={round} kind={kind} />}
    </>
  );
}

function Parameters({ round, kind }: { round: RoundDetail; kind: PolicyInfo }) {
  const id = useId();
  const fields = fieldsOf(kind.schema);
  const given = kind.name === round.policy ? round.parameters : {};
  const [values, setValues] = useState<Record<string, unknown>>(() => Object.fromEntries(fields.map((field) => [field.name, given[field.name] ?? field.fallback])));
  const [open, setOpen] = useState(false);
  const replay = useReplay(String(round.round));
  const errors = replay.error instanceof ApiError ? replay.error.errors : [];
  const at = (name: string) => errors.find((error) => error.field.split(".").includes(name))?.message;
  return (
    <form noValidate onSubmit={(event) => { event.preventDefault(); replay.mutate({ policy: kind.name, parameters: values }); }}>
      <div className={css.line}>
        <button type="submit" className="btn pri" disabled={replay.isPending}>{replay.isPending ? "Planning" : "Run again"}</button>
        {fields.length > 0 && <button type="button" className="btn" aria-expanded={open} aria-controls={id} onClick={() => setOpen(!open)}>Parameters</button>}
        <span className="sub grow" role="status">{replay.data ? `${replayWords(replay.data)} Planned in ${preciseDuration(replay.data.seconds)}.` : ""}</span>
      </div>
      <div id={id} className={css.fields} hidden={!open}>
        {fields.map((field) => <ParameterField key={field.name} field={field} value={values[field.name]} error={at(field.name)} onChange={(value) => setValues({ ...values, [field.name]: value })} />)}
      </div>
      {replay.error && <div className="fault" role="alert">{replay.error.message}</div>}
      {replay.data && <Result replay={replay.data} round={round} />}
    </form>
  );
}

function Result({ replay, round }: { replay: Replay; round: RoundDetail }) {
  const [all, setAll] = useState(false);
  const changed = replay.jobs.filter((job) => job.change !== "same");
  const shown = all ? replay.jobs : changed;
  const download = `data:application/json,${encodeURIComponent(JSON.stringify(replay))}`;
  return (
    <>
      {replay.notes.map((note) => <p key={note} className="pb sub">{note}</p>)}
      {replay.rejected !== null && <p className="pb sub">{replay.rejected}</p>}
      <Board nodes={replay.nodes} before={round.nodes} labels={["As it was decided", "Under this policy"]} />
      <div className={css.line} style={{ paddingTop: 12 }}>
        <div className="seg small" role="group" aria-label="Jobs">
          <button type="button" aria-pressed={!all} onClick={() => setAll(false)}>With other GPUs</button>
          <button type="button" aria-pressed={all} onClick={() => setAll(true)}>All</button>
        </div>
        <span className="sub grow">{Object.entries(replay.figures).slice(0, 4).map(([key, value]) => `${figureName(key)} ${number(value)}`).join(", ")}</span>
        <a className="btn sm" href={download} download={`replay-${replay.round}-${replay.policy}.json`}>JSON</a>
      </div>
      {shown.length === 0 ? <p className="empty">No job would have had other GPUs.</p> : <Changes jobs={shown} />}
    </>
  );
}

function Changes({ jobs }: { jobs: ReplayedJob[] }) {
  return (
    <div className="tw" tabIndex={0} style={{ maxHeight: 520 }}>
      <table className="t cards">
        <thead><tr><th scope="col">Job</th><th scope="col">Change</th><th scope="col" className="ra">Decided</th><th scope="col" className="ra">Under this policy</th><th scope="col">Why then</th><th scope="col">Why so</th></tr></thead>
        <tbody>
          {jobs.map((job) => (
            <tr key={job.job.number}>
              <td className="wide"><JobRef number={job.job.number} name={job.job.name} project={job.job.project} /></td>
              <td data-l="Change"><span className={CHANGE_CHIPS[job.change]}>{CHANGE_WORDS[job.change]}</span></td>
              <td data-l="Decided" className="ra">{gangText(job.recorded)}</td>
              <td data-l="Under this policy" className="ra">{gangText(job.replayed)}</td>
              <td data-l="Why then" className={`wide ${css.why}`} style={{ whiteSpace: "normal", fontWeight: 400 }}>{job.reason_recorded?.text ?? "–"}</td>
              <td data-l="Why so" className={`wide ${css.why}`} style={{ whiteSpace: "normal", fontWeight: 400 }}>{job.reason_replayed?.text ?? "–"}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
