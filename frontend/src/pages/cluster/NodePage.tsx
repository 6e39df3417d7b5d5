import { lazy, Suspense, useState } from "react";
import { Link, useParams } from "react-router";
import { ApiError } from "../../api/client";
import { useNode } from "../../api/clusterHooks";
import type { NodeDetail, Session } from "../../api/types";
import { FigureStrip } from "../../components/FigureStrip";
import { Loadable, Panel, SentenceWaits, Skeleton } from "../../components/Panel";
import { Emulated } from "../../components/StateChip";
import { useNow } from "../../lib/clock";
import { dateTime, gibibytes, integer, percent, relative, typeName } from "../../lib/format";
import type { Figure } from "../../lib/job/jobView";
import { useCluster, useLiveJobs } from "../../lib/live/liveContext";
import { busyGpus, nodeSentence } from "./nodeWords";
import { othersGpus, othersWords } from "./others";
import { TopBar } from "../../shell/TopBar";
import { NodeGpus } from "../../components/gpus/NodeGpus";
import { CheckPanel } from "./ChecksPanel";
import { DrainForm } from "./DrainForm";
import { DrainsPanel } from "./DrainsPanel";
import { NodeEvents, NodeFaults, NodeJobs } from "./NodeLists";
import { NodeState } from "./NodesPanel";
import { Name } from "../../components/Name";

const HeldChart = lazy(() => import("./HeldChart"));
const PER_ROW = 16;
const HALVES = { gridTemplateColumns: "repeat(2,minmax(0,1fr))" };

export default function NodePage({ session }: { session: Session }) {
  const { name = "" } = useParams();
  const query = useNode(name);
  if (query.error instanceof ApiError && query.error.status === 404) return <Missing name={name} />;
  return (
    <>
      <TopBar title={name} crumb={<><Link to="/cluster">Cluster</Link><i>/</i><bdi>{name}</bdi></>} />
      <div className="page">
        {!query.data && !query.error && <SentenceWaits />}
        <Loadable query={query} what="The node" skeleton={<Waiting />}>
          {(node) => <Known key={node.name} node={node} isAdmin={session.user?.is_admin ?? false} />}
        </Loadable>
      </div>
    </>
  );
}

function Missing({ name }: { name: string }) {
  return (
    <>
      <TopBar title="No such node" crumb={<><Link to="/cluster">Cluster</Link><i>/</i><bdi>{name}</bdi></>} />
      <div className="page">
        <h1 className="say"><b>There is no node <Name>{name}</Name>.</b> It may have been renamed, or never reported. <Link className="link" to="/cluster">All nodes</Link></h1>
      </div>
    </>
  );
}

/** The page's geometry. */
function Waiting() {
  return (
    <div style={{ display: "grid", gap: 12 }}>
      <Skeleton height={84} /><Skeleton height={106} />
      <div className="cols" style={HALVES}><Skeleton height={200} /><Skeleton height={200} /></div>
    </div>
  );
}

function Known({ node, isAdmin }: { node: NodeDetail; isAdmin: boolean }) {
  const now = useNow(10_000);
  const [draining, setDraining] = useState(false);
  const { head, rest } = nodeSentence(node, now);
  const others = othersWords(node, useCluster()?.cluster.engine, now);
  return (
    <>
      <header style={{ display: "grid", gap: 4 }}>
        <div className="title">
          <Name>{node.name}</Name>
          <span style={{ fontSize: 13, fontWeight: 400, letterSpacing: 0 }}><NodeState node={node} now={now} /></span>
          {node.emulated && <Emulated />}
          {isAdmin && !node.drain && <button type="button" className="btn" style={{ marginLeft: "auto", fontSize: 13, letterSpacing: 0 }} title="Place nothing new; say what becomes of its jobs first" onClick={() => setDraining(true)}>Drain</button>}
        </div>
        <h1 className="say"><b>{head}</b>{rest}</h1>
      </header>
      {draining && <DrainForm name={node.name} onClose={() => setDraining(false)} />}
      <FigureStrip figures={figures(node, others, now)} />
      <DrainsPanel nodes={[node]} isAdmin={isAdmin} />
      <Gpus node={node} now={now} />
      <div className="cols" style={HALVES}>
        <NodeJobs jobs={node.jobs} now={now} />
        <Held node={node} />
      </div>
      <CheckPanel node={node} isAdmin={isAdmin} />
      <div className="cols" style={HALVES}>
        <NodeFaults node={node} now={now} />
        <NodeEvents events={node.events} now={now} />
      </div>
    </>
  );
}

function figures(node: NodeDetail, others: string | null, now: Date): Figure[] {
  const seen = node.last_seen_at ? new Date(node.last_seen_at) : null;
  const { allocated_part: held } = node.use;
  return [
    { label: "Type", value: typeName(node.type), detail: node.accelerators[0]?.memory_mib ? `${gibibytes(node.accelerators[0].memory_mib)} each` : "" },
    { label: "GPUs in use", value: integer(busyGpus(node)), unit: `of ${integer(node.gpus - othersGpus(node))}`, detail: node.schedulable ? (others ?? "") : "takes no new jobs" },
    { label: "Allocated", value: held === null ? "–" : percent(held), detail: "mean of the last 24 h" },
    { label: "Busy", value: node.busy_part === null ? "–" : percent(node.busy_part), detail: node.busy_part === null ? "no job of it says so" : "GPUs whose jobs say so, now" },
    { label: "Processors", value: node.cpus > 0 ? integer(node.cpus) : "–", detail: node.cpus > 0 ? "" : "not reported" },
    { label: "Memory", value: node.memory_mib > 0 ? gibibytes(node.memory_mib) : "–", detail: node.memory_mib > 0 ? "" : "not reported" },
    { label: "Last seen", value: seen ? relative(seen, now) : "never", detail: seen ? dateTime(seen) : "" },
  ];
}

/** As on the overview, live. */
function Gpus({ node, now }: { node: NodeDetail; now: Date }) {
  const cluster = useCluster();
  const jobs = useLiveJobs();
  const state = cluster?.nodes[node.name];
  return (
    <Panel title="Accelerators" meta={`${busyGpus(node)} of ${node.gpus - othersGpus(node)} in use`}>
      {node.gpus === 0 ? <p className="empty">It reports no accelerators.</p> : (
        <div className="pb">
          {state ? <NodeGpus name={node.name} node={state} jobs={jobs} now={now} columns={Math.min(PER_ROW, state.gpus)} small={false} /> : <Skeleton height={66} />}
        </div>
      )}
    </Panel>
  );
}

function Held({ node }: { node: NodeDetail }) {
  const [read, setRead] = useState<string | null>(null);
  const { use } = node;
  return (
    <Panel title="GPUs allocated" meta="last 24 h, by half hour" right={<span className="sub">{read ?? ""}</span>}>
      {use.allocated_part === null ? <p className="empty">This node has no accelerators.</p> : (
        <Suspense fallback={<div className="pb"><Skeleton height={150} /></div>}>
          <HeldChart use={use} gpus={node.gpus} onRead={setRead} />
        </Suspense>
      )}
    </Panel>
  );
}
