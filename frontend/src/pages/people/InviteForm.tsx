import { useState } from "react";
import { useProjects } from "../../api/hooks";
import { useInvite } from "../../api/projectHooks";
import type { NewInvitation, Role } from "../../api/types";
import { FormDialog } from "../../components/FormDialog";
import { Choice, Text } from "../../components/TextField";
import { problemsOf } from "../../lib/problem";
import { ROLES } from "../../lib/roles";

/** Somebody comes to the cluster by way of a project. */
export function InviteForm({ onInvited, onClose }: { onInvited: (invitation: NewInvitation) => void; onClose: () => void }) {
  const invite = useInvite();
  const projects = (useProjects().data ?? []).filter((one) => one.archived_at === null);
  const [email, setEmail] = useState("");
  const [role, setRole] = useState<Role>("member");
  const [chosen, setChosen] = useState("");
  const project = chosen || (projects[0]?.key ?? "");
  const { at, rest } = problemsOf(invite.error, ["email", "role"]);
  const done = (invitation: NewInvitation) => {
    onInvited(invitation);
    onClose();
  };
  return (
    <FormDialog title="Invite a person" action="Invite" fault={rest} busy={invite.isPending || project === ""} onSubmit={() => invite.mutate({ project, email: email.trim(), role }, { onSuccess: done })} onClose={onClose}>
      <Text label="E-mail" type="email" value={email} onChange={setEmail} required placeholder="ada@example.org" error={at.email} />
      <Choice label="To project" value={project} onChange={setChosen} options={projects.map((one) => [one.key, one.name])} />
      <Choice label="Role" value={role} onChange={(value) => setRole(value as Role)} options={ROLES} error={at.role} />
      <p className="sub" style={{ flexBasis: "100%" }}>{projects.length === 0 ? "There is no project yet: make one first." : "They get a link that works once. People with an account join with it too."}</p>
    </FormDialog>
  );
}
