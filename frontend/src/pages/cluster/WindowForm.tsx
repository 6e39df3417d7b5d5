import { Modal } from "@mantine/core";
import { useState, type FormEvent } from "react";
import { useAddWindow } from "../../api/clusterHooks";
import type { ClusterNode, NodeWindow } from "../../api/types";
import { timeZone } from "../../lib/format";
import { Text } from "../../components/TextField";
import { listed, NodeChoice } from "./NodeChoice";

export function WindowForm({ nodes, onClose }: { nodes: ClusterNode[]; onClose: () => void }) {
  const add = useAddWindow();
  const [kind, setKind] = useState<NodeWindow["kind"]>("maintenance");
  const [start, setStart] = useState("");
  const [end, setEnd] = useState("");
  const [reason, setReason] = useState("");
  const [every, setEvery] = useState(true);
  const [names, setNames] = useState("");
  const [types, setTypes] = useState<string[]>([]);
  const [projects, setProjects] = useState("");
  const [users, setUsers] = useState("");
  const reserved = kind === "reservation";
  const submit = (event: FormEvent) => {
    event.preventDefault();
    const where = every ? { all_nodes: true, nodes: [], accelerator_types: [] } : { all_nodes: false, nodes: listed(names), accelerator_types: types };
    const whom = { projects: reserved ? listed(projects) : [], users: reserved ? listed(users) : [] };
    add.mutate({ kind, start_at: new Date(start).toISOString(), end_at: new Date(end).toISOString(), reason: reason.trim(), ...where, ...whom }, { onSuccess: onClose });
  };
  return (
    <Modal opened onClose={onClose} title="New window" size={560} closeButtonProps={{ "aria-label": "Close" }}>
      <form onSubmit={submit} style={{ display: "flex", gap: 12, flexWrap: "wrap", alignItems: "flex-end" }}>
        <div className="f grow" style={{ minWidth: 220 }}>
          <label htmlFor="window-kind">Kind</label>
          <select id="window-kind" className="in" value={kind} onChange={(event) => setKind(event.target.value as NodeWindow["kind"])}>
            <option value="maintenance">maintenance, closed to all jobs</option>
            <option value="reservation">reservation, for some</option>
          </select>
        </div>
        <Text label="Reason" value={reason} onChange={setReason} placeholder="new switches" />
        <Moment label="Begins" value={start} onChange={setStart} />
        <Moment label="Ends" value={end} onChange={setEnd} />
        {reserved && <Text label="Keys of projects" value={projects} onChange={setProjects} placeholder="vision, speech" />}
        {reserved && <Text label="Addresses of people" value={users} onChange={setUsers} placeholder="ada@example.org" />}
        <p className="sub" style={{ flexBasis: "100%" }}>Times are in your time zone, {timeZone(start ? new Date(start) : new Date())}.</p>
        <label style={{ display: "flex", gap: 6, alignItems: "center", flexBasis: "100%" }}>
          <input type="checkbox" checked={every} onChange={() => setEvery(!every)} />All nodes
        </label>
        {!every && <NodeChoice nodes={nodes} names={names} types={types} onNames={setNames} onTypes={setTypes} />}
        <p className="sub" style={{ flexBasis: "100%" }}>{reserved ? "Jobs of others" : "Jobs"} on these nodes run until it begins, then write a checkpoint and move or queue again.</p>
        {add.error && <div className="fault" role="alert" style={{ margin: 0, flexBasis: "100%" }}>{add.error.message}</div>}
        <div style={{ display: "flex", gap: 8, justifyContent: "flex-end", flexBasis: "100%" }}>
          <button type="button" className="btn" onClick={onClose}>Close</button>
          <button type="submit" className="btn pri" disabled={add.isPending || !start || !end}>Set window</button>
        </div>
      </form>
    </Modal>
  );
}

function Moment({ label, value, onChange }: { label: string; value: string; onChange: (value: string) => void }) {
  const id = `window-${label.toLowerCase()}`;
  return (
    <div className="f grow" style={{ minWidth: 190 }}>
      <label htmlFor={id}>{label}</label>
      <input id={id} type="datetime-local" className="in" required value={value} onChange={(event) => onChange(event.target.value)} />
    </div>
  );
}
