import { useState } from "react";
import { useResume } from "../../api/clusterHooks";
import type { ClusterNode } from "../../api/types";
import { Panel } from "../../components/Panel";
import { useNow } from "../../lib/clock";
import { consequences, drainedNodes, type Drained } from "./drains";
import { count, dateTime, moment, relative } from "../../lib/format";
import { DrainForm } from "./DrainForm";
import { DrainJobs } from "./DrainJobs";
import { Name } from "../../components/Name";

const AT_ONCE = 20;

/** Nodes that are taken out of use, with who is still there; nothing where there are none. */
export function DrainsPanel({ nodes, isAdmin }: { nodes: ClusterNode[]; isAdmin: boolean }) {
  const [shown, setShown] = useState(AT_ONCE);
  const [changing, setChanging] = useState<Drained | null>(null);
  const drained = drainedNodes(nodes);
  if (drained.length === 0) return null;
  return (
    <Panel title="Drains" meta={count(drained.length, "node")}>
      <ul className="list">{drained.slice(0, shown).map((node) => <Row key={node.name} node={node} isAdmin={isAdmin} onChange={setChanging} />)}</ul>
      {changing !== null && <DrainForm key={changing.name} name={changing.name} drain={changing.drain} onClose={() => setChanging(null)} />}
      {drained.length > shown && <button type="button" className="more" style={{ padding: 8 }} onClick={() => setShown(shown + AT_ONCE)}>More nodes</button>}
    </Panel>
  );
}

function Row({ node, isAdmin, onChange }: { node: Drained; isAdmin: boolean; onChange: (node: Drained) => void }) {
  const resume = useResume();
  const now = useNow(10_000);
  const { drain } = node;
  const ahead = drain.state === "draining" && drain.deadline_at !== null && new Date(drain.deadline_at) > now;
  return (
    <li style={{ padding: "8px 14px", borderTop: "1px solid var(--line)" }}>
      <div style={{ display: "flex", gap: 8, alignItems: "center", flexWrap: "wrap" }}>
        <b style={{ fontWeight: 500 }}><Name>{node.name}</Name></b>
        <DrainMark node={node} now={now} />
        {drain.reason && <Name>{drain.reason}</Name>}
        {drain.by && <span className="sub" title={drain.since_at ? `since ${dateTime(new Date(drain.since_at))}` : undefined}>by <Name>{drain.by}</Name></span>}
        {isAdmin && (
          <span style={{ marginLeft: "auto", display: "flex", gap: 8 }}>
            {drain.state === "draining" && <button type="button" className="btn sm" onClick={() => onChange(node)}>Change</button>}
            <button type="button" className="btn sm" disabled={resume.isPending} onClick={() => resume.mutate(node.name)}>{ahead ? "Cancel drain" : "Resume"}</button>
          </span>
        )}
      </div>
      {resume.error && <div className="fault" role="alert" style={{ margin: "6px 0 0" }}>{resume.error.message}</div>}
      <p className="sub" style={{ marginBottom: 6 }}>{consequences(drain.jobs)}</p>
      <DrainJobs jobs={drain.jobs} />
    </li>
  );
}

/** The grey cross-hatch and the word, with the deadline. */
export function DrainMark({ node, now }: { node: Drained; now: Date }) {
  const { state, deadline_at: deadline } = node.drain;
  const at = deadline ? new Date(deadline) : null;
  const until = state === "draining" && at ? (at > now ? ` until ${moment(at, now)}, ${relative(at, now)}` : `, due ${relative(at, now)}`) : "";
  return (
    <span title={at ? dateTime(at) : undefined} style={{ display: "inline-flex", gap: 6, alignItems: "center", color: "var(--ink-2)" }}>
      <i className="crossed" aria-hidden />{state}{until}
    </span>
  );
}
