import { useState } from "react";
import { useAddMember, useChangeMember, useMembers, useRemoveMember } from "../../api/projectHooks";
import { rowsOf } from "../../api/pages";
import type { Member, NewInvitation, ProjectDetail, Role } from "../../api/types";
import { AskDialog } from "../../components/AskDialog";
import { ConfirmUnproved } from "./ConfirmUnproved";
import { FormDialog } from "../../components/FormDialog";
import { Icon } from "../../components/icons";
import { More } from "../../components/More";
import { Loadable, Panel, Skeleton } from "../../components/Panel";
import { Choice, Text } from "../../components/TextField";
import { UnprovedMark } from "../../components/UnprovedMark";
import { problemsOf } from "../../lib/problem";
import { ROLES } from "../../lib/roles";
import { InvitationLink } from "../../components/InvitationLink";
import { Name } from "../../components/Name";
import { isolated } from "../../lib/isolated";

type Open = { kind: "add" } | { kind: "change" | "remove"; member: Member } | null;

/** Everybody with a role here, and where it comes from. */
export function MembersPanel({ project, manages, email }: { project: ProjectDetail; manages: boolean; email: string }) {
  const query = useMembers(project.key);
  const [open, setOpen] = useState<Open>(null);
  const [invited, setInvited] = useState<NewInvitation | null>(null);
  const close = () => setOpen(null);
  return (
    <>
      {invited && <InvitationLink invitation={invited} onDone={() => setInvited(null)} />}
      <Panel title="Members" right={manages && <button type="button" className="btn sm" onClick={() => setOpen({ kind: "add" })}><Icon name="plus" size={12} />Add a member</button>}>
        <Loadable query={query} what="The list of members" skeleton={<Skeleton height={26} count={3} />}>
          {(data) => rowsOf(data).length === 0 ? <p className="empty">Only administrators of the cluster have a role here.</p> : <Table rows={rowsOf(data)} manages={manages} email={email} onOpen={setOpen} />}
        </Loadable>
        <More query={query} label="More members" />
      </Panel>
      {open?.kind === "add" && <AddForm project={project} onInvited={setInvited} onClose={close} />}
      {open?.kind === "change" && <RoleForm project={project} member={open.member} onClose={close} />}
      {open?.kind === "remove" && <RemoveDialog project={project} member={open.member} onClose={close} />}
    </>
  );
}

function Table({ rows, manages, email, onOpen }: { rows: Member[]; manages: boolean; email: string; onOpen: (open: Open) => void }) {
  return (
    <div className="tw" tabIndex={0}>
      <table className="t cards">
        <thead><tr><th scope="col">Name</th><th scope="col">E-mail</th><th scope="col">Role</th><th scope="col">Given</th>{manages && <th scope="col"><span className="vh">Action</span></th>}</tr></thead>
        <tbody>
          {rows.map((member) => (
            <tr key={member.user.id}>
              <td className="wide" style={{ fontWeight: 500 }}>
                <Name>{member.user.name}</Name>{member.user.email === email && <span className="sub">you</span>}
                {member.kind === "service" && <span className="chip" style={{ marginLeft: 6 }}>service account</span>}
                {!member.is_active && <span className="chip warn" style={{ marginLeft: 6 }}>deactivated</span>}
              </td>
              <td className="wide"><Name>{member.user.email}</Name>{!member.address_proved && <UnprovedMark provenance={member.provenance} />}</td>
              <td data-l="Role">{member.role}</td>
              <td data-l="Given">{given(member)}</td>
              {manages && <td className="ra acts">{member.kind === "person" && <Actions member={member} onOpen={onOpen} />}</td>}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function given(member: Member): string {
  const where = member.inherited_from === null ? "here" : `in ${member.inherited_from}`;
  return member.by_directory ? `${where}, by their groups` : where;
}

function Actions({ member, onOpen }: { member: Member; onOpen: (open: Open) => void }) {
  return (
    <>
      <button type="button" className="btn sm" aria-label={`Change role of ${isolated(member.user.name)}`} onClick={() => onOpen({ kind: "change", member })}>Change role</button>{" "}
      {member.inherited_from === null && !member.by_directory && <button type="button" className="btn sm bad" aria-label={`Remove ${isolated(member.user.name)}`} onClick={() => onOpen({ kind: "remove", member })}>Remove</button>}
    </>
  );
}

function AddForm({ project, onInvited, onClose }: { project: ProjectDetail; onInvited: (invitation: NewInvitation | null) => void; onClose: () => void }) {
  const add = useAddMember(project.key);
  const [email, setEmail] = useState("");
  const [role, setRole] = useState<Role>("member");
  const [confirmed, setConfirmed] = useState(false);
  const { at, rest } = problemsOf(add.error, ["email", "role", "confirm_unproved"]);
  const changeEmail = (value: string) => {
    setEmail(value);
    setConfirmed(false);
    add.reset();
  };
  const submit = () => add.mutate({ email: email.trim(), role, ...(confirmed && { confirm_unproved: true }) }, { onSuccess: done });
  const done = (invitation: NewInvitation | null) => {
    onInvited(invitation);
    onClose();
  };
  return (
    <FormDialog title={`Add a member to ${isolated(project.name)}`} action="Add" fault={rest} busy={add.isPending} onSubmit={submit} onClose={onClose}>
      <Text label="E-mail" type="email" value={email} onChange={changeEmail} required placeholder="ada@example.org" error={at.email} />
      <Choice label="Role" value={role} onChange={(value) => setRole(value as Role)} options={ROLES} error={at.role} />
      <p className="sub" style={{ flexBasis: "100%" }}>A person with an account is a member at once, here and in all projects below. Others get an invitation: a link that works once.</p>
      <ConfirmUnproved sentence={at.confirm_unproved} checked={confirmed} onChange={setConfirmed} />
    </FormDialog>
  );
}

function RoleForm({ project, member, onClose }: { project: ProjectDetail; member: Member; onClose: () => void }) {
  const change = useChangeMember(project.key);
  const [role, setRole] = useState<Role>(member.role);
  const [confirmed, setConfirmed] = useState(false);
  const { at, rest } = problemsOf(change.error, ["role", "confirm_unproved"]);
  const submit = () => change.mutate({ id: member.user.id, role, ...(confirmed && { confirm_unproved: true }) }, { onSuccess: onClose });
  return (
    <FormDialog title={`Role of ${isolated(member.user.name)}`} fault={rest} busy={change.isPending} onSubmit={submit} onClose={onClose}>
      <Choice label="Role" value={role} onChange={(value) => setRole(value as Role)} options={ROLES} error={at.role} />
      {(member.inherited_from !== null || member.by_directory) && <p className="sub" style={{ flexBasis: "100%" }}>The role given {given(member)} stays, and the higher of the two counts.</p>}
      <ConfirmUnproved sentence={at.confirm_unproved} checked={confirmed} onChange={setConfirmed} />
    </FormDialog>
  );
}

function RemoveDialog({ project, member, onClose }: { project: ProjectDetail; member: Member; onClose: () => void }) {
  const remove = useRemoveMember(project.key);
  return (
    <AskDialog
      title={`Remove ${isolated(member.user.name)}?`} keep="Keep them" action="Remove from the project" error={remove.error} busy={remove.isPending}
      onDo={() => remove.mutate(member.user.id, { onSuccess: onClose })} onClose={onClose}
    >
      They can no longer see or change anything in <Name>{project.name}</Name> and below, unless another role reaches there. Jobs that they submitted stay and keep running.
    </AskDialog>
  );
}
