import { useNodes } from "../../api/clusterHooks";
import type { ClusterNode, Session } from "../../api/types";
import { count } from "../../lib/format";
import { TopBar } from "../../shell/TopBar";
import { ChecksPanel } from "./ChecksPanel";
import { DrainsPanel } from "./DrainsPanel";
import { FailingPanel } from "./FailingPanel";
import { NodesPanel } from "./NodesPanel";
import { PartitionsPanel } from "./PartitionsPanel";
import { WindowsPanel } from "./WindowsPanel";

export default function ClusterPage({ session }: { session: Session }) {
  const nodes = useNodes();
  const isAdmin = session.user?.is_admin ?? false;
  return (
    <>
      <TopBar title="Cluster" />
      <div className="page">
        <h1 className="say">{nodes.data ? <Opening nodes={nodes.data} /> : "Nodes and the sets that they are in."}</h1>
        <DrainsPanel isAdmin={isAdmin} nodes={nodes.data ?? []} />
        <ChecksPanel isAdmin={isAdmin} nodes={nodes.data ?? []} />
        <WindowsPanel isAdmin={isAdmin} nodes={nodes.data ?? []} />
        <PartitionsPanel isAdmin={isAdmin} nodes={nodes.data ?? []} />
        <NodesPanel query={nodes} isAdmin={isAdmin} />
        {isAdmin && <FailingPanel />}
      </div>
    </>
  );
}

function Opening({ nodes }: { nodes: ClusterNode[] }) {
  const gpus = nodes.flatMap((node) => node.accelerators);
  const busy = gpus.filter((gpu) => gpu.state === "held" || gpu.state === "assigned").length;
  const others = gpus.filter((gpu) => gpu.state === "others").length;
  const away = nodes.filter((node) => !node.schedulable).length;
  return (
    <>
      <b>{busy} of {count(gpus.length - others, "GPU")} are in use</b> on {count(nodes.length, "node")}{others > 0 && `, ${others} more by others in its engine`}
      {away > 0 ? `; ${count(away, "node")} ${away === 1 ? "takes" : "take"} no new jobs.` : "."}
    </>
  );
}
