import { Fragment, useState } from "react";
import { usePartitions, useRemovePartition } from "../../api/clusterHooks";
import type { ClusterNode, Partition } from "../../api/types";
import { Loadable, Panel, Skeleton } from "../../components/Panel";
import { Icon } from "../../components/icons";
import { count, duration, integer, typeName } from "../../lib/format";
import { PartitionForm } from "./PartitionForm";
import { Name } from "../../components/Name";

export function PartitionsPanel({ isAdmin, nodes }: { isAdmin: boolean; nodes: ClusterNode[] }) {
  const query = usePartitions();
  const [open, setOpen] = useState<Partition | "new" | null>(null);
  const button = isAdmin && <button type="button" className="btn sm" onClick={() => setOpen("new")}><Icon name="plus" size={12} />New partition</button>;
  return (
    <Panel title="Partitions" meta="sets of nodes that jobs name" right={button}>
      <Loadable query={query} what="The list of partitions" skeleton={<Skeleton height={26} count={2} />}>
        {(list) => list.length === 0 ? <p className="empty">There are none: every job may use every node.</p> : <Table list={list} isAdmin={isAdmin} onEdit={setOpen} />}
      </Loadable>
      {open !== null && <PartitionForm key={open === "new" ? "" : open.name} partition={open === "new" ? null : open} nodes={nodes} onClose={() => setOpen(null)} />}
    </Panel>
  );
}

function Table({ list, isAdmin, onEdit }: { list: Partition[]; isAdmin: boolean; onEdit: (partition: Partition) => void }) {
  return (
    <div className="tw" tabIndex={0}>
      <table className="t cards">
        <thead>
          <tr>
            <th scope="col">Partition</th><th scope="col">Nodes</th><th scope="col" className="ra">GPUs</th><th scope="col" className="ra">Priority</th>
            <th scope="col" className="ra">Of one job</th><th scope="col">For</th>{isAdmin && <th scope="col"><span className="vh">Action</span></th>}
          </tr>
        </thead>
        <tbody>{list.map((one) => <Row key={one.name} partition={one} isAdmin={isAdmin} onEdit={() => onEdit(one)} />)}</tbody>
      </table>
    </div>
  );
}

function limits(partition: Partition): string {
  const parts = [
    partition.max_gpus === null ? "" : count(partition.max_gpus, "GPU"),
    partition.max_duration_s === null ? "" : duration(partition.max_duration_s),
  ].filter(Boolean);
  return parts.join(", ");
}

function Row({ partition, isAdmin, onEdit }: { partition: Partition; isAdmin: boolean; onEdit: () => void }) {
  const remove = useRemovePartition();
  const named = [...partition.nodes, ...partition.accelerator_types.map((type) => `all ${typeName(type)}`)];
  return (
    <tr>
      <td className="wide" style={{ fontWeight: 500 }}><Name>{partition.name}</Name>{partition.is_default && <span className="chip" style={{ marginLeft: 6 }}>default</span>}</td>
      <td data-l="Nodes" className="whole" title={named.join(", ")}>{integer(partition.node_count)} <span className="sub">{named.slice(0, 3).map((name, i) => <Fragment key={name}>{i > 0 && ", "}<Name>{name}</Name></Fragment>)}{named.length > 3 ? ", …" : ""}</span></td>
      <td className="ra" data-l="GPUs">{integer(partition.gpus)}</td>
      <td className="ra" data-l="Priority">{integer(partition.priority)}</td>
      <td className="ra" data-l="Of one job">{limits(partition) || <span className="sub">no limit</span>}</td>
      <td data-l="For">{partition.for_everybody ? "everybody" : partition.projects.join(", ") || <span className="sub">other projects</span>}</td>
      {isAdmin && (
        <td className="ra" style={{ whiteSpace: "nowrap" }}>
          <button type="button" className="btn sm" onClick={onEdit}>Change</button>{" "}
          <button type="button" className="btn sm bad" disabled={remove.isPending} onClick={() => remove.mutate(partition.name)}>Remove</button>
          {remove.error && <div className="h bad" role="alert">{remove.error.message}</div>}
        </td>
      )}
    </tr>
  );
}
