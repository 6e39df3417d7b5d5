import { Fragment } from "react";
import { Link } from "react-router";
import type { JobDetail, Run } from "../../api/types";
import { JobRef } from "../../components/JobRef";
import { NodeLink } from "../../components/NodeLink";
import { Panel } from "../../components/Panel";
import { bytes, count, dateTime, duration, integer, moment, partOf, percent } from "../../lib/format";
import { jobPaint } from "../../lib/highlight";
import { hasEnded } from "../../lib/job/jobState";
import { useCluster, useLiveJobs } from "../../lib/live/liveContext";
import { neighboursOf, type Neighbour } from "./neighbours";
import css from "./job.module.css";
import { sentenceOf } from "../../lib/isolated";

function every(job: JobDetail): string | undefined {
  const asked = job.spec.checkpoint;
  if (typeof asked !== "object" || asked === null) return undefined;
  const { every_steps: steps, keep } = asked as { every_steps?: number; keep?: number };
  const parts = [steps ? `every ${count(steps, "step")}` : "", keep ? `keeps ${keep}` : ""];
  return parts.filter(Boolean).join(", ") || undefined;
}

export function Checkpoints({ job }: { job: JobDetail }) {
  const now = new Date();
  const list = [...job.checkpoints].sort((a, b) => b.step - a.step);
  return (
    <Panel title="Checkpoints" right={<span className="sub">{every(job)}</span>}>
      {list.length === 0 ? (
        <p className="empty">{hasEnded(job.state) ? "It left no checkpoint." : `None yet. A restart would begin at step ${integer(job.resumed_from?.step ?? 0)}.`}</p>
      ) : (
        <table className="t">
          <tbody>
            {list.slice(0, 6).map((checkpoint, i) => (
              <tr key={checkpoint.step}>
                <td>step {integer(checkpoint.step)}</td>
                <td className="sub" title={dateTime(new Date(checkpoint.at))}>{moment(new Date(checkpoint.at), now)}</td>
                <td className="sub ra">{checkpoint.bytes === null ? "" : bytes(checkpoint.bytes)}</td>
                <td className="ra">{i === 0 && <span className="chip good">latest</span>}</td>
                {hasEnded(job.state) && <td className="ra"><Link className="link" to={`/submit?from=${job.number}&step=${checkpoint.step}`} aria-label={`Begin here: a new job at step ${integer(checkpoint.step)}`}>Begin here</Link></td>}
              </tr>
            ))}
          </tbody>
        </table>
      )}
    </Panel>
  );
}

/** Attempts, and how each ended: only worth a card when one ended, or there were several. */
export function Runs({ job }: { job: JobDetail }) {
  const runs = [...job.runs].sort((a, b) => b.attempt - a.attempt);
  if (runs.length === 0 || (runs.length === 1 && !runs[0]?.exit && !job.exit)) return null;
  return (
    <Panel title="Runs" meta={count(runs.length, "attempt")}>
      <div className="pb" style={{ display: "grid", gap: 8 }}>
        {runs.map((run) => <RunRow key={run.id} run={run} exit={run.exit ?? (run.id === job.run?.id ? job.exit : null)} />)}
      </div>
    </Panel>
  );
}

function RunRow({ run, exit }: { run: Run; exit: JobDetail["exit"] }) {
  const took = run.started_at && run.finished_at ? (Date.parse(run.finished_at) - Date.parse(run.started_at)) / 1000 : null;
  const code = exit?.signal ? `signal ${exit.signal}` : exit?.exit_code !== null && exit?.exit_code !== undefined ? `exit code ${exit.exit_code}` : "";
  return (
    <div style={{ fontSize: 12, lineHeight: "18px" }}>
      <b style={{ fontWeight: 500 }}>Run {run.attempt}</b>
      <span className="sub"> {[took === null ? "" : duration(took), exit?.reason?.replaceAll("_", " "), code].filter(Boolean).join(", ")}</span>
      {exit?.message && <p style={{ color: "var(--ink-2)", overflowWrap: "anywhere" }}>{sentenceOf(exit.message)}</p>}
    </div>
  );
}

const held = (one: Neighbour) => partOf(one.share_percent, count(one.gpus, "GPU"));

export function HeldNow({ job }: { job: JobDetail }) {
  const cluster = useCluster();
  const jobs = useLiveJobs();
  const nodes = cluster?.nodes;
  const gpus = job.allocation?.gpus ?? [];
  if (gpus.length === 0) return null;
  const beside = neighboursOf(job.number, gpus, cluster);
  const names = [...new Set(gpus.map((gpu) => gpu.node))];
  return (
    <Panel title="Allocated now" right={<span className="sub ell">{names.length > 2 ? `${names.length} nodes` : names.map((name, i) => <Fragment key={name}>{i > 0 && ", "}<NodeLink name={name} /></Fragment>)}</span>}>
      <div className="pb">
        <div className={css.held} style={jobPaint(job.number)}>
          {gpus.slice(0, 32).map((gpu) => {
            const share = nodes?.[gpu.node]?.accelerators[String(gpu.index)]?.utilisation;
            return <div key={`${gpu.node}/${gpu.index}`} title={`${gpu.node} GPU ${gpu.index}`}>{partOf(job.allocation?.share_percent, `GPU ${gpu.index}`)}{share != null && <span>{percent(share)}</span>}</div>;
          })}
        </div>
        {gpus.length > 32 && <p className="sub">and {gpus.length - 32} more</p>}
        <p className={css.beside}>
          {beside.length === 0 ? <span className="sub">No other job is on {names.length === 1 ? "this node" : "these nodes"}.</span> : (
            <>
              <span className="sub">On the same {names.length === 1 ? "node" : "nodes"}:</span>
              {beside.slice(0, 8).map((one) => (
                <span key={one.number} title={`${held(one)} on ${one.nodes.join(", ")}`}>
                  <JobRef number={one.number} name={jobs.get(one.number)?.full?.name ?? null} project={one.project} />
                  <span className="sub"> {held(one)}</span>
                </span>
              ))}
              {beside.length > 8 && <span className="sub">and {beside.length - 8} more jobs</span>}
            </>
          )}
        </p>
      </div>
    </Panel>
  );
}
