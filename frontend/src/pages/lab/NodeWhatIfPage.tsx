import { useState } from "react";
import { Link } from "react-router";
import { useAcceleratorTypes } from "../../api/hooks";
import type { AcceleratorType, ForeseenNode, NodeWhatIf, Session } from "../../api/types";
import { useForeseen, useNodeWhatIf } from "../../api/whatIfHooks";
import { JobRef } from "../../components/JobRef";
import { Fault, Loadable, Panel, Skeleton } from "../../components/Panel";
import { Choice } from "../../components/TextField";
import { useNow } from "../../lib/clock";
import { count, duration, moment, money } from "../../lib/format";
import { gangText } from "./rounds";
import { TopBar } from "../../shell/TopBar";
import css from "./lab.module.css";
import { sentenceOf } from "../../lib/isolated";

/** What one more node would do for the jobs of a project. */
export default function NodeWhatIfPage({ session }: { session: Session }) {
  const types = useAcceleratorTypes();
  return (
    <>
      <TopBar title="One more node" crumb={<><Link to="/lab">Policy lab</Link><i>/</i>One more node</>} />
      <div className="page" style={{ maxWidth: 920 }}>
        <h1 className="say"><b>What would one more node do for a project?</b> Its jobs that wait, and those that could grow, by the forecast and the next round.</h1>
        <Loadable query={types} what="The list of accelerator types" skeleton={<Skeleton height={40} count={2} />}>
          {(known) => known.length === 0 || session.projects.length === 0 ? <p className="empty">There are no {known.length === 0 ? "nodes" : "projects of yours"} yet.</p> : <Form types={known} session={session} />}
        </Loadable>
      </div>
    </>
  );
}

function Form({ types, session }: { types: AcceleratorType[]; session: Session }) {
  const [type, setType] = useState(types[0]?.name ?? "");
  const [project, setProject] = useState(session.projects[0]?.key ?? "");
  const ask = useNodeWhatIf();
  const foreseen = useForeseen(ask.data?.what_if ?? null);
  return (
    <>
      <Panel title="A node">
        <form noValidate className={css.line} style={{ paddingTop: 12 }} onSubmit={(event) => { event.preventDefault(); ask.mutate({ project, type }); }}>
          <Choice label="Accelerator type" value={type} options={types.map((one) => [one.name, one.title])} onChange={setType} />
          <Choice label="Project" value={project} options={session.projects.map((one) => [one.key, one.name])} onChange={setProject} />
          <button type="submit" className="btn pri" disabled={ask.isPending}>{ask.isPending ? "Asking" : "What if…"}</button>
        </form>
        {ask.error && <div className="fault" role="alert">{ask.error.message}</div>}
        {ask.data && <p className="pb">{priceWords(ask.data)}</p>}
      </Panel>
      {foreseen.error && <Fault what="The effect" query={foreseen} />}
      {ask.data && !foreseen.data && !foreseen.error && <div role="status"><span className="vh">Replaying the queue</span><Skeleton height={30} count={4} /></div>}
      {ask.data && foreseen.data?.node && <Effect node={foreseen.data.node} />}
    </>
  );
}

function priceWords({ type, gpus, nodes_now, gpus_now, price, currency }: NodeWhatIf): string {
  return `One more node of ${count(gpus, "GPU")} beside ${count(nodes_now, "node")} with ${count(gpus_now, "GPU")} of type ${type}; all of it used would cost ${money(Number(price.per_gpu_hour) * gpus, currency)} an hour.`;
}

function Effect({ node }: { node: ForeseenNode }) {
  const grown = node.running.filter((job) => (job.after?.count ?? 0) > (job.before?.count ?? 0)).length;
  const sooner = node.waiting.filter((job) => job.sooner_s >= 10).length;
  return (
    <>
      <p aria-live="polite">
        <b style={{ fontWeight: 600 }}>{sooner} of {count(node.waiting_total, "waiting job")} would start sooner, {grown} of {count(node.running_total, "running job")} would grow with the next round.</b>{" "}
        Of other projects {count(node.others_sooner, "job")} would start sooner and {node.others_growing} would grow.
      </p>
      <Panel title="Jobs that wait" meta="expected start and end, without the node and with it">
        {node.waiting.length === 0 ? <p className="empty">None of this project waits.</p> : (
          <div className="tw" tabIndex={0}>
            <table className="t cards">
              <thead><tr><th scope="col">Job</th><th scope="col" className="ra">Starts now</th><th scope="col" className="ra">With it</th><th scope="col" className="ra">Sooner by</th><th scope="col" className="ra">Ends now</th><th scope="col" className="ra">With it</th></tr></thead>
              <tbody>
                {node.waiting.map((job) => (
                  <tr key={job.job.number}>
                    <td className="wide"><JobRef number={job.job.number} name={job.job.name} /></td>
                    <td className="ra" data-l="Starts now"><At at={job.start_before.p50_at} why={job.start_before.reason?.text} /></td>
                    <td className="ra" data-l="Starts with it" title={job.gang_after ? `on ${gangText(job.gang_after)}` : undefined}><At at={job.start_after.p50_at} why={job.start_after.reason?.text} /></td>
                    <td className="ra" data-l="Sooner by">{job.sooner_s >= 10 ? duration(job.sooner_s) : "the same"}</td>
                    <td className="ra" data-l="Ends now"><At at={job.end_before_at} /></td>
                    <td className="ra" data-l="Ends with it"><At at={job.end_after_at} /></td>
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
        )}
      </Panel>
      <Panel title="Jobs that run" meta="GPUs after the next round">
        {node.running.length === 0 ? <p className="empty">None of this project runs.</p> : (
          <div className="tw" tabIndex={0}>
            <table className="t cards">
              <thead><tr><th scope="col">Job</th><th scope="col" className="ra">Now</th><th scope="col" className="ra">Next round</th><th scope="col" className="ra">With the node</th></tr></thead>
              <tbody>
                {node.running.map((job) => (
                  <tr key={job.job.number}>
                    <td className="wide"><JobRef number={job.job.number} name={job.job.name} /></td>
                    <td className="ra" data-l="Now">{gangText(job.now)}</td>
                    <td className="ra" data-l="Next round">{gangText(job.before)}</td>
                    <td className="ra" data-l="With the node">{gangText(job.after)}</td>
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
        )}
      </Panel>
    </>
  );
}

function At({ at, why }: { at: string | null; why?: string | undefined }) {
  const now = useNow();
  return at === null ? <span title={why && sentenceOf(why)}>–</span> : <>{moment(new Date(at), now)}</>;
}
