import { Modal } from "@mantine/core";
import { useState, type FormEvent } from "react";
import { useAcceleratorTypes } from "../../api/hooks";
import { useSetGuarantee } from "../../api/limitHooks";
import type { Guarantee, Project } from "../../api/types";
import { Choice, Text } from "../../components/TextField";
import { typeName } from "../../lib/format";

interface Props {
  guarantee: Guarantee | null;
  choices: Project[];
  project: string;
  onClose: () => void;
}

/** A new one is for one of `choices`, which have none yet, `project` before others. */
export function GuaranteeForm({ guarantee, choices, project: shown, onClose }: Props) {
  const save = useSetGuarantee();
  const types = useAcceleratorTypes();
  const [chosen, setProject] = useState<string | null>(guarantee?.project ?? null);
  const project = chosen ?? choices.find((one) => one.key === shown)?.key ?? choices[0]?.key ?? ""; // they may be on their way
  const [gpus, setGpus] = useState(guarantee ? String(guarantee.gpus) : "");
  const [parts, setParts] = useState<Record<string, string>>(Object.fromEntries((guarantee?.by_type ?? []).map((part) => [part.type, String(part.gpus)])));
  const [within, setWithin] = useState(String(guarantee?.reclaim_within_s ?? 300));
  const submit = (event: FormEvent) => {
    event.preventDefault();
    const given = Object.entries(parts).filter(([, count]) => count.trim() !== "").map(([type, count]) => [type, Number(count)]);
    save.mutate({ project, wish: { gpus: Number(gpus), by_type: Object.fromEntries(given), reclaim_within_s: Number(within || 0) } }, { onSuccess: onClose });
  };
  const known = [...new Set([...(types.data ?? []).filter((one) => one.count > 0).map((one) => one.name), ...Object.keys(parts)])];
  const options = guarantee ? [[guarantee.project, guarantee.project] as [string, string]] : choices.map((one): [string, string] => [one.key, one.name]);
  return (
    <Modal opened onClose={onClose} title={guarantee ? `Change what ${guarantee.project} is guaranteed` : "Guarantee GPUs"} size={560} closeButtonProps={{ "aria-label": "Close" }}>
      <form onSubmit={submit} style={{ display: "flex", gap: 12, flexWrap: "wrap", alignItems: "flex-end" }}>
        <Choice label="To project" value={project} disabled={guarantee !== null} onChange={setProject} options={options} />
        <Text label="GPUs" value={gpus} onChange={setGpus} number required />
        {known.map((type) => <Text key={type} label={`Of these ${typeName(type)}`} value={parts[type] ?? ""} onChange={(value) => setParts({ ...parts, [type]: value })} number placeholder="any" />)}
        <Text label="Back within seconds" value={within} onChange={setWithin} number required />
        <p className="sub" style={{ flexBasis: "100%" }}>While the project does not use them others borrow them; when its jobs wait, borrowers write a checkpoint and leave, those under protection by then.</p>
        {save.error && <div className="fault" role="alert" style={{ margin: 0, flexBasis: "100%" }}>{save.error.message}</div>}
        <div style={{ display: "flex", gap: 8, justifyContent: "flex-end", flexBasis: "100%" }}>
          <button type="button" className="btn" onClick={onClose}>Close</button>
          <button type="submit" className="btn pri" disabled={save.isPending || project === ""}>Save</button>
        </div>
      </form>
    </Modal>
  );
}
