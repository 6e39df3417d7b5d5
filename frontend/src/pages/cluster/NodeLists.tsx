import type { NodeDetail, NodeEvent, NodeFault, NodeJob } from "../../api/types";
import { Icon, StateGlyph } from "../../components/icons";
import { JobRef } from "../../components/JobRef";
import { Panel } from "../../components/Panel";
import { eventMark } from "../../lib/job/eventIcon";
import { count, dateTime, moment, partOf, percent, relative } from "../../lib/format";
import { sentenceOf } from "../../lib/isolated";
import { byFrequency, faultsMeta, reasonWords } from "./nodeWords";

/** Who has GPUs of it, or is to. */
export function NodeJobs({ jobs, now }: { jobs: NodeJob[]; now: Date }) {
  return (
    <Panel title="Jobs" meta={jobs.length > 0 ? count(jobs.length, "job") : undefined}>
      {jobs.length === 0 ? <p className="empty">No job has a GPU of this node, and none is to get one.</p> : (
        <div className="tw" tabIndex={0} role="region" aria-label="Jobs on this node">
          <table className="t cards">
            <thead><tr><th scope="col">Job</th><th scope="col" className="ra">GPUs here</th><th scope="col" className="ra">Busy</th><th scope="col" className="ra">Since</th></tr></thead>
            <tbody>
              {jobs.map((one) => (
                <tr key={one.job.number}>
                  <td className="wide"><JobRef number={one.job.number} name={one.job.name} project={one.job.project} /></td>
                  <td className="ra" data-l="GPUs here">{partOf(one.share_percent, count(one.gpus, "GPU"))}</td>
                  <td className="ra" data-l="Busy">{one.busy_part === null ? <span className="sub" title="Its programs do not say, or it is a job of another project">–</span> : percent(one.busy_part)}</td>
                  <td className="ra" data-l="Since">{one.since_at ? <Time at={new Date(one.since_at)} now={now} /> : <span className="sub">assigned, not there yet</span>}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </Panel>
  );
}

function Time({ at, now }: { at: Date; now: Date }) {
  return <time dateTime={at.toISOString()} title={dateTime(at)}>{moment(at, now)}, <span className="sub" style={{ margin: 0 }}>{relative(at, now)}</span></time>;
}

/** What failed while it had GPUs of it; whether the node is to blame the reasons hint at. */
export function NodeFaults({ node, now }: { node: NodeDetail; now: Date }) {
  return (
    <Panel title="Failed runs" meta={faultsMeta(node)}>
      {node.faults.length > 0 && (
        <p className="pb" style={{ display: "flex", gap: 6, flexWrap: "wrap", paddingBottom: 8 }}>
          {byFrequency(node.faults_by_reason).map(([reason, n]) => <span key={reason} className="chip" title={reason}>{n} {reasonWords(reason)}</span>)}
        </p>
      )}
      {node.faults.length === 0 ? <p className="empty">No run failed on this node.</p> : (
        <ul className="list scroll" style={{ maxHeight: 420 }} tabIndex={0} aria-label="Failed runs, newest first">
          {node.faults.map((fault) => <Fault key={`${fault.job.number}/${fault.attempt}`} fault={fault} now={now} />)}
        </ul>
      )}
    </Panel>
  );
}

function Fault({ fault, now }: { fault: NodeFault; now: Date }) {
  return (
    <li style={{ padding: "6px 14px", borderTop: "1px solid var(--line)", fontSize: 12, lineHeight: "18px" }}>
      <div style={{ display: "flex", gap: "2px 8px", alignItems: "center", flexWrap: "wrap" }}>
        <JobRef number={fault.job.number} name={fault.job.name} project={fault.job.project} />
        <span className="chip bad" title={fault.reason}>{reasonWords(fault.reason)}</span>
        {fault.attempt > 1 && <span className="sub">attempt {fault.attempt}</span>}
        <span style={{ marginLeft: "auto" }}><Time at={new Date(fault.at)} now={now} /></span>
      </div>
      {fault.text && <div className="sub" style={{ overflowWrap: "anywhere" }}>{sentenceOf(fault.text)}</div>}
    </li>
  );
}

export function NodeEvents({ events, now }: { events: NodeEvent[]; now: Date }) {
  return (
    <Panel title="Events" meta="last 90 days">
      {events.length === 0 ? <p className="empty">Nothing has happened to it.</p> : (
        <ol className="list feed scroll" style={{ maxHeight: 420 }} tabIndex={0} aria-label="Events of this node, newest first">
          {events.map((event) => <Event key={event.id} event={event} now={now} />)}
        </ol>
      )}
    </Panel>
  );
}

function Event({ event, now }: { event: NodeEvent; now: Date }) {
  const mark = eventMark(event);
  const at = new Date(event.at);
  return (
    <li className="ev" style={{ gridTemplateColumns: "104px 16px minmax(0,1fr)" }}>
      <time dateTime={event.at} title={dateTime(at)}>{moment(at, now)}</time>
      <span style={{ color: mark.colour }}>{"glyph" in mark ? <StateGlyph glyph={mark.glyph} /> : <Icon name={mark.icon} size={14} />}</span>
      <span style={{ overflowWrap: "anywhere" }}>{sentenceOf(event.text)}</span>
    </li>
  );
}
