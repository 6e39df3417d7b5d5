import { useState } from "react";
import { useNavigate } from "react-router";
import { useCreateProject } from "../../api/projectHooks";
import type { Project } from "../../api/types";
import { FormDialog } from "../../components/FormDialog";
import { Choice, Text } from "../../components/TextField";
import { problemsOf } from "../../lib/problem";

/** Below a project that one manages; at the top for administrators. */
export function NewProject({ places, isAdmin, onClose }: { places: Project[]; isAdmin: boolean; onClose: () => void }) {
  const create = useCreateProject();
  const navigate = useNavigate();
  const [name, setName] = useState("");
  const [key, setKey] = useState("");
  const [parent, setParent] = useState(isAdmin ? "" : (places[0]?.key ?? ""));
  const { at, rest } = problemsOf(create.error, ["key", "name", "parent"]);
  const options = [...places].sort((a, b) => a.name.localeCompare(b.name)).map((one): [string, string] => [one.key, one.name]);
  const submit = () => create.mutate({ key: key.trim(), name: name.trim(), parent: parent || null }, { onSuccess: () => void navigate(`/projects/${key.trim()}`) });
  return (
    <FormDialog title="New project" action="Create" fault={rest} busy={create.isPending} onSubmit={submit} onClose={onClose}>
      <Text label="Name" value={name} onChange={setName} required placeholder="Computer vision" error={at.name} />
      <Text label="Key" value={key} onChange={setKey} required placeholder="vision" error={at.key} />
      <Choice label="Below" value={parent} onChange={setParent} options={isAdmin ? [["", "nothing: at the top"], ...options] : options} error={at.parent} />
      <p className="sub" style={{ flexBasis: "100%" }}>The key names it in job files and addresses: lower-case letters, digits and dashes. It is kept for good; the name can be changed.</p>
    </FormDialog>
  );
}
