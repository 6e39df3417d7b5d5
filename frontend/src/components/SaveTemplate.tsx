import { Modal } from "@mantine/core";
import { useState, type FormEvent } from "react";
import { ApiError } from "../api/client";
import { useSession } from "../api/hooks";
import { useChangeTemplate, useCreateTemplate, useTemplates } from "../api/templateHooks";
import type { JobFile } from "../lib/jobfile/jobFile";
import { sharers } from "../lib/jobfile/templates";
import { isolated } from "../lib/isolated";
import { Choice, Text } from "./TextField";

/** A job file under a name, for oneself or for a project. One of the same name is replaced. */
export function SaveTemplate({ file, name: proposed, onClose }: { file: JobFile; name: string; onClose: () => void }) {
  const session = useSession().data;
  const known = useTemplates().data?.results ?? [];
  const create = useCreateTemplate();
  const change = useChangeTemplate();
  const [name, setName] = useState(proposed);
  const [description, setDescription] = useState("");
  const [project, setProject] = useState("");
  const same = known.find((one) => one.name === name.trim() && (one.project ?? "") === project);
  const error = create.error ?? change.error;
  const send = (event: FormEvent) => {
    event.preventDefault();
    const body = { name: name.trim(), description: description.trim(), file: project ? { ...file, project } : file };
    if (same) change.mutate({ id: same.id, body }, { onSuccess: onClose });
    else create.mutate({ ...body, ...(project ? { project } : {}) }, { onSuccess: onClose });
  };
  return (
    <Modal opened onClose={onClose} title="Save as template" size={440} closeButtonProps={{ "aria-label": "Close" }}>
      <form onSubmit={send} style={{ display: "grid", gap: 12 }}>
        <Text label="Name" value={name} onChange={setName} required />
        <Text label="What it is for" value={description} onChange={setDescription} />
        <Choice label="For" value={project} onChange={setProject} options={[["", "me alone"], ...sharers(session).map((one): [string, string] => [one.key, `members of ${isolated(one.name)}`])]} />
        <p className="sub">{same ? (same.can_change ? `It replaces the template ${isolated(same.name)}.` : `There is a template ${isolated(same.name)} already, which others change: choose another name.`) : project ? "Members begin jobs with it; you and managers change it." : "It is kept on the portal, for every browser of yours."}</p>
        {error && <div className="fault" role="alert" style={{ margin: 0 }}>{error instanceof ApiError && error.errors.length > 0 ? error.errors.map((one) => `${one.field}: ${one.message}`).join("; ") : error.message}</div>}
        <div style={{ display: "flex", gap: 8, justifyContent: "flex-end" }}>
          <button type="button" className="btn" onClick={onClose}>Leave it</button>
          <button type="submit" className="btn pri" disabled={create.isPending || change.isPending || name.trim() === "" || same?.can_change === false}>Save template</button>
        </div>
      </form>
    </Modal>
  );
}
