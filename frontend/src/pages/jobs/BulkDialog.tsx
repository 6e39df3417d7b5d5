import { Modal } from "@mantine/core";
import { useState } from "react";
import { Link } from "react-router";
import { useBulk } from "../../api/jobListHooks";
import type { BulkAction, BulkAnswer, Job, Session } from "../../api/types";
import { BULK_WORDS, consequence, labelPatch, outlook, outlookWords } from "./bulk";
import { count, integer } from "../../lib/format";
import { randomKey } from "../../lib/randomKey";
import css from "./jobs.module.css";
import { sentenceOf } from "../../lib/isolated";

interface Props {
  action: BulkAction;
  jobs: Job[];
  session: Session | undefined;
  onClose: () => void;
}

/** Says what will happen, asks, and shows what was answered for each job. */
export function BulkDialog({ action, jobs, session, onClose }: Props) {
  const bulk = useBulk();
  const [key] = useState(randomKey);
  const [found] = useState(() => outlook(action, jobs, session)); // jobs go on meanwhile: what was said stays as it was said
  const [add, setAdd] = useState("");
  const [remove, setRemove] = useState<string[]>([]);
  const words = BULK_WORDS[action];
  const labels = action === "label" ? labelPatch(add, remove) : undefined;
  const nothing = found.can.length === 0 || (labels !== undefined && Object.keys(labels).length === 0);
  const send = () => bulk.mutate({ action, ids: found.can.map((job) => job.number), key, ...(labels ? { labels } : {}) });
  const title = `${words.verb} ${count(jobs.length, "job")}`;
  return (
    <Modal opened onClose={onClose} title={bulk.data ? title : `${title}?`} size={480} closeButtonProps={{ "aria-label": "Close" }}>
      <div className={css.dialog}>
        {bulk.data ? <Answers action={action} answer={bulk.data} /> : (
          <>
            <p>{outlookWords(action, found)} {found.can.length > 0 && consequence(action, found.can)}</p>
            {action === "label" && <Labels jobs={found.can} add={add} onAdd={setAdd} remove={remove} onRemove={setRemove} />}
          </>
        )}
        {bulk.error && <div className="fault" role="alert" style={{ margin: 0 }}>{bulk.error.message}</div>}
        <div className={css.end}>
          <button type="button" className="btn" onClick={onClose} data-autofocus>{bulk.data ? "Done" : "Leave them"}</button>
          {!bulk.data && (
            <button type="button" className={action === "cancel" ? "btn danger" : "btn pri"} disabled={bulk.isPending || nothing} onClick={send}>
              {bulk.isPending ? words.doing : `${words.verb} ${count(found.can.length, "job")}`}
            </button>
          )}
        </div>
      </div>
    </Modal>
  );
}

interface LabelsProps {
  jobs: Job[];
  add: string;
  onAdd: (text: string) => void;
  remove: string[];
  onRemove: (keys: string[]) => void;
}

const MOST_KEYS = 30;

function Labels({ jobs, add, onAdd, remove, onRemove }: LabelsProps) {
  const keys = [...new Set(jobs.flatMap((job) => Object.keys(job.labels)))].sort().slice(0, MOST_KEYS);
  const toggle = (key: string) => onRemove(remove.includes(key) ? remove.filter((one) => one !== key) : [...remove, key]);
  return (
    <>
      <div className="f">
        <label htmlFor="label-add">Add</label>
        <input id="label-add" className="in" placeholder="sweep=7, stage=nightly" value={add} onChange={(event) => onAdd(event.target.value)} />
        <div className="h">key=value, separated by commas; a key that is there gets the new value.</div>
      </div>
      {keys.length > 0 && (
        <fieldset className="f">
          <legend>Remove</legend>
          <div style={{ display: "flex", flexWrap: "wrap", gap: "6px 14px" }}>
            {keys.map((key) => <label key={key} className={css.check}><input type="checkbox" checked={remove.includes(key)} onChange={() => toggle(key)} />{key}</label>)}
          </div>
        </fieldset>
      )}
    </>
  );
}

function Answers({ action, answer }: { action: BulkAction; answer: BulkAnswer }) {
  const refused = answer.results.filter((result) => result.status >= 300);
  const made = answer.results.filter((result) => result.made !== null);
  return (
    <>
      <p role="status">{refused.length === 0 ? `All ${integer(answer.succeeded)} are ${BULK_WORDS[action].done}.` : `${integer(answer.succeeded)} of ${integer(answer.results.length)} are ${BULK_WORDS[action].done}.`}</p>
      {(refused.length > 0 || made.length > 0) && (
        <ul className={`list ${css.answers}`} tabIndex={0} aria-label="Answer for each job">
          {refused.map((result) => <li key={result.id}><b>#{result.number ?? result.id}</b> was not: {result.detail && sentenceOf(result.detail)}</li>)}
          {made.map((result) => <li key={result.id}>#{result.number} is submitted again as <Link className="link" to={`/jobs/${result.made}`}>#{result.made}</Link></li>)}
        </ul>
      )}
    </>
  );
}
