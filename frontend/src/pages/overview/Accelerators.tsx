import type { NodeState } from "../../api/types";
import type { ClusterState } from "../../lib/live/blanks";
import { NodeLink } from "../../components/NodeLink";
import { Panel } from "../../components/Panel";
import { Emulated } from "../../components/StateChip";
import { useAcceleratorTypes } from "../../api/hooks";
import { busyOf, densityFor, gpusOutOfUse, meanUtilisation, type Density } from "../../lib/sentence/blocks";
import { fixed, integer, money, percent, THIN, typeName, withUnit } from "../../lib/format";
import { jobPaint } from "../../lib/highlight";
import type { JobView } from "../../lib/live/liveContext";
import { HeatMap } from "./HeatMap";
import { NodeGpus } from "../../components/gpus/NodeGpus";

const PER_ROW = 16;

interface Props {
  cluster: ClusterState;
  jobs: Map<number, JobView>;
  now: Date;
}

export function Accelerators({ cluster, jobs, now }: Props) {
  const { tiles } = cluster;
  const nodes = Object.entries(cluster.nodes).sort(([a], [b]) => a.localeCompare(b, "en", { numeric: true }));
  const density = densityFor(tiles.gpus_total + tiles.gpus_others);
  const out = gpusOutOfUse(cluster);
  const free = tiles.gpus_total - tiles.gpus_busy - out;
  const facts = [
    `${integer(tiles.gpus_busy)} of ${integer(tiles.gpus_total)} in use`, free > 0 ? `${integer(free)} free` : "", out > 0 ? `${integer(out)} out of use` : "",
    tiles.gpus_others > 0 ? `${integer(tiles.gpus_others)} more by others in ${cluster.cluster.engine}` : "",
  ];
  return (
    <Panel title="Accelerators" meta={facts.filter(Boolean).join(", ")} right={density === "heat" ? undefined : <Legend />}>
      {nodes.length === 0 && <p className="empty">No node has reported yet.</p>}
      <div className="pb scroll" style={{ maxHeight: density === "full" ? undefined : 640 }} tabIndex={density === "full" ? undefined : 0}>
        {density === "heat" ? <HeatMap nodes={nodes} /> : <NodeList nodes={nodes} density={density} jobs={jobs} now={now} currency={cluster.cluster.currency} />}
      </div>
    </Panel>
  );
}

function Legend() {
  return (
    <div className="legend only-wide">
      <span><i className="lg" style={jobPaint(8)}><i className="hx protected" /></i>protected</span>
      <span><i className="lg blk moving" style={{ ...jobPaint(2), height: 10 }} />launching or moving</span>
      <span><i className="lg" style={jobPaint(7)}><i className="hx emulated" /></i>emulated</span>
    </div>
  );
}

interface ListProps {
  nodes: [string, NodeState][];
  density: Density;
  jobs: Map<number, JobView>;
  now: Date;
  currency: string;
}

function NodeList({ nodes, density, jobs, now, currency }: ListProps) {
  const types = useAcceleratorTypes().data ?? [];
  const widest = Math.min(PER_ROW, Math.max(...nodes.map(([, node]) => node.gpus), 1));
  const several = density === "full" && widest <= 2 && nodes.length > 3;
  const lines = several ? { gridTemplateColumns: `repeat(auto-fill,minmax(${widest * 130}px,1fr))`, columnGap: 12 } : {};
  return (
    <div className={density === "fold" ? "nodes fold" : "nodes"} style={lines}>
      {nodes.map(([name, node]) => {
        const memory = types.find((type) => type.name === node.type)?.memory_mib;
        return (
          <div className="node" key={name}>
            <NodeHead name={name} node={node} memory={memory ?? null} currency={currency} brief={density === "fold" || several} />
            <NodeGpus name={name} node={node} jobs={jobs} now={now} columns={widest} small={density === "fold"} />
          </div>
        );
      })}
    </div>
  );
}

function NodeHead({ name, node, memory, currency, brief }: { name: string; node: NodeState; memory: number | null; currency: string; brief: boolean }) {
  const busy = busyOf(node);
  const used = meanUtilisation(node);
  const ours = node.gpus - node.others;
  if (brief) return <div className="nh"><b><NodeLink name={name} /></b><span>{busy}/{ours} {typeName(node.type)}</span></div>;
  return (
    <div className="nh">
      <b><NodeLink name={name} /></b>
      <span>{node.gpus}{THIN}×{THIN}{typeName(node.type)}</span>
      {memory !== null && memory > 0 && <span>{withUnit(fixed(memory / 1024, 0), "GB")}</span>}
      {node.emulated && <Emulated />}
      <span className="r">
        <span>{busy} of {ours} in use</span>
        {used !== null && <span className="only-wide">{percent(used)} busy</span>}
        {node.price_per_hour !== null && <span>{money(node.price_per_hour, currency)}/h</span>}
      </span>
    </div>
  );
}
