import { useState } from "react";
import { usePartitions, useResume, useWindows, type useNodes } from "../../api/clusterHooks";
import type { ClusterNode, NodeWindow, Partition } from "../../api/types";
import { NodeLink } from "../../components/NodeLink";
import { Loadable, Panel, Skeleton } from "../../components/Panel";
import { useNow } from "../../lib/clock";
import { count, dateTime, moment, relative, typeName } from "../../lib/format";
import { useCluster } from "../../lib/live/liveContext";
import { busyGpus, powerWords, reasonWords, unclearWords } from "./nodeWords";
import { othersGpus, othersWords } from "./others";
import { nextWindow } from "./windows";
import { WithheldMark } from "./ChecksPanel";
import { DrainForm } from "./DrainForm";
import { DrainMark } from "./DrainsPanel";

/** A page of rows; more come on demand, so that ten thousand nodes do not freeze it. */
const AT_ONCE = 100;

export function NodesPanel({ query, isAdmin }: { query: ReturnType<typeof useNodes>; isAdmin: boolean }) {
  const partitions = usePartitions().data ?? [];
  const windows = useWindows(false).data ?? [];
  const [shown, setShown] = useState(AT_ONCE);
  const [draining, setDraining] = useState<string | null>(null);
  const now = useNow(10_000);
  return (
    <Panel title="Nodes" meta={query.data && count(query.data.length, "node")}>
      <Loadable query={query} what="The list of nodes" skeleton={<Skeleton height={26} count={4} />}>
        {(nodes) => nodes.length === 0 ? <p className="empty">No node has reported yet.</p> : (
          <>
            <div className="tw" tabIndex={0}>
              <table className="t cards">
                <thead>
                  <tr>
                    <th scope="col">Node</th><th scope="col">Type</th><th scope="col" className="ra">GPUs in use</th><th scope="col">State</th>
                    <th scope="col">Partitions</th><th scope="col">Next window</th>{isAdmin && <th scope="col"><span className="vh">Action</span></th>}
                  </tr>
                </thead>
                <tbody>{nodes.slice(0, shown).map((node) => <Row key={node.name} node={node} partitions={partitions} windows={windows} isAdmin={isAdmin} now={now} onDrain={setDraining} />)}</tbody>
              </table>
            </div>
            {nodes.length > shown && <button type="button" className="more" style={{ padding: 8 }} onClick={() => setShown(shown + AT_ONCE)}>More nodes</button>}
          </>
        )}
      </Loadable>
      {draining !== null && <DrainForm key={draining} name={draining} onClose={() => setDraining(null)} />}
    </Panel>
  );
}

interface RowProps {
  node: ClusterNode;
  partitions: Partition[];
  windows: NodeWindow[];
  isAdmin: boolean;
  now: Date;
  onDrain: (name: string) => void;
}

/** In service, lost, drained with its deadline, kept from work by its check, or powered down. */
export function NodeState({ node, now }: { node: ClusterNode; now: Date }) {
  const { drain } = node;
  if (node.lost) return <span className="chip bad" title={node.last_seen_at ? `last seen ${relative(new Date(node.last_seen_at), now)}` : undefined}>lost</span>;
  if (!drain && node.check.state) return <WithheldMark state={node.check.state} />;
  if (!drain && node.unclear) return <span className="chip warn" title={unclearWords(node, now)}>unclear</span>;
  if (!drain && node.power) return <span className="chip o" title={powerWords(node)}>{reasonWords(node.power)}</span>;
  return drain ? <DrainMark node={{ ...node, drain }} now={now} /> : <span className="sub">in service</span>;
}

function Row({ node, partitions, windows, isAdmin, now, onDrain }: RowProps) {
  const resume = useResume();
  const inside = partitions.filter((one) => one.nodes.includes(node.name) || one.accelerator_types.includes(node.type));
  const next = nextWindow(node, windows, now);
  const others = othersWords(node, useCluster()?.cluster.engine, now);
  return (
    <tr>
      <td className="wide" style={{ fontWeight: 500 }}><NodeLink name={node.name} />{node.emulated && <span className="chip o" style={{ marginLeft: 6 }}>emulated</span>}</td>
      <td data-l="Type">{typeName(node.type)}</td>
      <td className="ra" data-l="GPUs in use">{busyGpus(node)} of {node.gpus - othersGpus(node)}{others && <div className="sub">{others}</div>}</td>
      <td data-l="State" className="whole"><NodeState node={node} now={now} /></td>
      <td className="whole" data-l="Partitions">{inside.length > 0 ? inside.map((one) => one.name).join(", ") : <span className="sub">none</span>}</td>
      <td className="whole" data-l="Next window">{next ? <NextWindow window={next} /> : <span className="sub">none</span>}</td>
      {isAdmin && (
        <td className="ra">
          {node.drain
            ? <button type="button" className="btn sm" title="Use it again" disabled={resume.isPending} onClick={() => resume.mutate(node.name)}>Resume</button>
            : <button type="button" className="btn sm" title="Place nothing new; say what becomes of its jobs first" onClick={() => onDrain(node.name)}>Drain</button>}
          {resume.error && <div className="h bad" role="alert">{resume.error.message}</div>}
        </td>
      )}
    </tr>
  );
}

function NextWindow({ window }: { window: NodeWindow }) {
  const start = new Date(window.start_at);
  const end = new Date(window.end_at);
  const span = `${dateTime(start)} to ${dateTime(end)}`;
  if (window.state === "in_force") return <span className="chip warn" title={span}>{window.kind} until {moment(end, new Date())}</span>;
  return <span title={span}>{relative(start, new Date())} <span className="sub">{window.kind}</span></span>;
}
