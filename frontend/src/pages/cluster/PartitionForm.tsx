import { Modal } from "@mantine/core";
import { useState, type FormEvent } from "react";
import { useSetPartition } from "../../api/clusterHooks";
import type { ClusterNode, Partition } from "../../api/types";
import { Text } from "../../components/TextField";
import { listed, NodeChoice } from "./NodeChoice";
import { isolated } from "../../lib/isolated";

interface Props {
  partition: Partition | null;
  nodes: ClusterNode[];
  onClose: () => void;
}

const orNull = (text: string) => (text.trim() === "" ? null : Number(text));
const asText = (value: number | null | undefined) => (value == null ? "" : String(value));

export function PartitionForm({ partition, nodes, onClose }: Props) {
  const save = useSetPartition();
  const [name, setName] = useState(partition?.name ?? "");
  const [names, setNames] = useState((partition?.nodes ?? []).join(", "));
  const [types, setTypes] = useState<string[]>(partition?.accelerator_types ?? []);
  const [priority, setPriority] = useState(asText(partition?.priority ?? 0));
  const [gpus, setGpus] = useState(asText(partition?.max_gpus));
  const [seconds, setSeconds] = useState(asText(partition?.max_duration_s));
  const [projects, setProjects] = useState((partition?.projects ?? []).join(", "));
  const [restricted, setRestricted] = useState(partition ? !partition.for_everybody : false);
  const [isDefault, setDefault] = useState(partition?.is_default ?? false);
  const submit = (event: FormEvent) => {
    event.preventDefault();
    const wish = {
      nodes: listed(names), accelerator_types: types, priority: Number(priority || 0), for_everybody: !restricted, projects: restricted ? listed(projects) : [],
      max_gpus: orNull(gpus), max_duration_s: orNull(seconds), is_default: isDefault,
    };
    save.mutate({ name: name.trim(), wish }, { onSuccess: onClose });
  };
  return (
    <Modal opened onClose={onClose} title={partition ? `Change ${isolated(partition.name)}` : "New partition"} size={560} closeButtonProps={{ "aria-label": "Close" }}>
      <form onSubmit={submit} style={{ display: "flex", gap: 12, flexWrap: "wrap", alignItems: "flex-end" }}>
        <Text label="Name" value={name} onChange={setName} required disabled={partition !== null} placeholder="debug" />
        <NodeChoice nodes={nodes} names={names} types={types} onNames={setNames} onTypes={setTypes} />
        <Text label="Priority" value={priority} onChange={setPriority} number />
        <Text label="GPUs of one job" value={gpus} onChange={setGpus} number placeholder="no limit" />
        <Text label="Seconds of one job" value={seconds} onChange={setSeconds} number placeholder="no limit" />
        <label style={{ display: "flex", gap: 6, alignItems: "center", flexBasis: "100%" }}>
          <input type="checkbox" checked={isDefault} onChange={() => setDefault(!isDefault)} />Jobs that name none get this one
        </label>
        <label style={{ display: "flex", gap: 6, alignItems: "center", flexBasis: "100%" }}>
          <input type="checkbox" checked={restricted} onChange={() => setRestricted(!restricted)} />Only for some projects and those below them
        </label>
        {restricted && <Text label="Keys of projects" value={projects} onChange={setProjects} placeholder="vision, speech" />}
        {save.error && <div className="fault" role="alert" style={{ margin: 0, flexBasis: "100%" }}>{save.error.message}</div>}
        <div style={{ display: "flex", gap: 8, justifyContent: "flex-end", flexBasis: "100%" }}>
          <button type="button" className="btn" onClick={onClose}>Close</button>
          <button type="submit" className="btn pri" disabled={save.isPending}>Save</button>
        </div>
      </form>
    </Modal>
  );
}
