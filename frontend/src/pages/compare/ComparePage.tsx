import { useState, type FormEvent } from "react";
import { Link, useSearchParams } from "react-router";
import { useCostsOf, useJobsNamed } from "../../api/compareHooks";
import { ApiError } from "../../api/client";
import type { JobDetail } from "../../api/types";
import { JobRef } from "../../components/JobRef";
import { Fault, Panel, SentenceWaits, Skeleton } from "../../components/Panel";
import { Emulated, StateChip } from "../../components/StateChip";
import { Icon } from "../../components/icons";
import { count } from "../../lib/format";
import { MOST_COMPARED } from "../../lib/job/jobActions";
import { TopBar } from "../../shell/TopBar";
import { differenceWords, figures, parameters, referencesOf, type Line } from "./compare";
import { MetricPanels } from "./MetricPanels";
import css from "./compare.module.css";

/** Which jobs stands in the address. */
export default function ComparePage() {
  const [params, setParams] = useSearchParams();
  const references = referencesOf(params.get("jobs"));
  const choose = (next: string[]) => setParams({ jobs: next.join(",") }, { replace: true });
  return (
    <>
      <TopBar title="Compare jobs" crumb={<><Link to="/jobs">Jobs</Link><i>/</i>Compare</>} />
      <div className="page">
        <Body key={references.join()} references={references} onChoose={choose} />
      </div>
    </>
  );
}

function Body({ references, onChoose }: { references: string[]; onChoose: (references: string[]) => void }) {
  const queries = useJobsNamed(references);
  const missing = references.filter((_, i) => { const { error } = queries[i] ?? {}; return error instanceof ApiError && error.status === 404; });
  const failed = queries.find((query, i) => query.error && !query.data && !missing.includes(references[i] ?? ""));
  const found = queries.flatMap((query) => (query.data ? [query.data] : []));
  const jobs = found.filter((job, i) => found.findIndex((other) => other.number === job.number) === i);
  const loading = queries.some((query) => query.isPending);
  return (
    <>
      {loading ? <SentenceWaits /> : <Sentence jobs={jobs} missing={missing} />}
      {failed && <Fault what="A job" query={failed} />}
      <Panel title="Jobs">
        <div className={css.jobs}>
          {jobs.map((job) => (
            <span key={job.number}>
              <JobRef number={job.number} name={job.name} array={job.array} /><StateChip state={job.state} />{job.emulated && <Emulated />}
              <button type="button" className="btn sm ico" aria-label={`Leave out job ${job.number}`} onClick={() => onChoose(jobs.filter((one) => one !== job).map((one) => String(one.number)))}><Icon name="cross" size={12} /></button>
            </span>
          ))}
          {jobs.length < MOST_COMPARED && <Add onAdd={(reference) => onChoose([...jobs.map((one) => String(one.number)), reference])} />}
        </div>
      </Panel>
      {loading && <Skeleton height={420} />}
      {!loading && jobs.length > 1 && <Compared jobs={jobs} />}
    </>
  );
}

function Sentence({ jobs, missing }: { jobs: JobDetail[]; missing: string[] }) {
  const none = missing.length > 0 ? ` There is no job ${missing.join(" or ")} that you may see.` : "";
  if (jobs.length < 2) return <h1 className="say"><b>Choose two to {MOST_COMPARED} jobs</b> to see what differs between them and what came of it.{none}</h1>;
  const numbers = jobs.map((job) => job.number);
  return <h1 className="say"><b>Jobs {numbers.slice(0, -1).join(", ")} and {numbers.at(-1)}</b> {differenceWords(parameters(jobs.map((job) => job.spec)))}.{none}</h1>;
}

function Add({ onAdd }: { onAdd: (reference: string) => void }) {
  const [typed, setTyped] = useState("");
  const [reference] = referencesOf(typed);
  const send = (event: FormEvent) => {
    event.preventDefault();
    if (reference) onAdd(reference);
  };
  return (
    <form className={css.add} onSubmit={send}>
      <input className="in" aria-label="Number of another job" placeholder="Number of a job" value={typed} onChange={(event) => setTyped(event.target.value)} />
      <button type="submit" className="btn sm" disabled={!reference}>Add</button>
    </form>
  );
}

function Compared({ jobs }: { jobs: JobDetail[] }) {
  const costs = useCostsOf(jobs);
  const [all, setAll] = useState(false);
  const lines = parameters(jobs.map((job) => job.spec));
  const differing = lines.filter((line) => line.differs);
  return (
    <>
      <Panel title="What came of it">
        <Side jobs={jobs} head="Figure" lines={figures(jobs, costs.map((cost) => cost.data))} />
      </Panel>
      <MetricPanels jobs={jobs} />
      <Panel
        title="Parameters" meta={`${count(differing.length, "difference")} among ${lines.length}`}
        right={<label style={{ display: "flex", gap: 6, alignItems: "center", fontSize: 12 }}><input type="checkbox" checked={!all} onChange={() => setAll(!all)} />Only what differs</label>}
      >
        {differing.length === 0 && !all ? <p className="empty">Their job files are the same.</p> : <Side jobs={jobs} head="Parameter" lines={all ? lines : differing} mono />}
      </Panel>
    </>
  );
}

/** A line that differs says so in words and weight. */
function Side({ jobs, head, lines, mono = false }: { jobs: JobDetail[]; head: string; lines: Line[]; mono?: boolean }) {
  return (
    <div className="tw" tabIndex={0}>
      <table className="t cards">
        <thead><tr><th scope="col">{head}</th>{jobs.map((job) => <th key={job.number} scope="col"><span className={css.head}><JobRef number={job.number} name={job.name} /></span></th>)}</tr></thead>
        <tbody>
          {lines.map((line) => (
            <tr key={line.name}>
              <td className={`wide ${line.differs ? css.differs : css.same}`}>{line.name}{line.differs && mono && <span className="chip acc" style={{ marginLeft: 6 }}>differs</span>}</td>
              {line.values.map((value, i) => <td key={jobs[i]?.number ?? i} data-l={String(jobs[i]?.number ?? "")} className={`${css.value} ${line.differs ? css.differs : css.same} ${mono ? "mono" : ""}`} style={mono ? { fontSize: 12 } : undefined}>{value ?? <span className="sub" style={{ margin: 0 }}>not given</span>}</td>)}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
