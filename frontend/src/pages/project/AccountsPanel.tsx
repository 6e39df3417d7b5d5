import { useState } from "react";
import { useAddAccount, useChangeAccount, useServiceAccounts } from "../../api/projectHooks";
import { rowsOf } from "../../api/pages";
import type { ProjectDetail, Role, ServiceAccount } from "../../api/types";
import { AskDialog } from "../../components/AskDialog";
import { FormDialog } from "../../components/FormDialog";
import { Icon } from "../../components/icons";
import { More } from "../../components/More";
import { Loadable, Panel, Skeleton } from "../../components/Panel";
import { Choice, Text } from "../../components/TextField";
import { useNow } from "../../lib/clock";
import { integer, moment } from "../../lib/format";
import { problemsOf } from "../../lib/problem";
import { ROLES } from "../../lib/roles";
import { AccountTokens } from "./AccountTokens";
import { Name } from "../../components/Name";
import { isolated } from "../../lib/isolated";

type Open = { kind: "new" } | { kind: "change" | "stop"; account: ServiceAccount } | null;

/** Accounts for programs, and their tokens. */
export function AccountsPanel({ project, manages }: { project: ProjectDetail; manages: boolean }) {
  const query = useServiceAccounts(project.key);
  const [open, setOpen] = useState<Open>(null);
  const [tokensOf, setTokensOf] = useState<number | null>(null);
  const close = () => setOpen(null);
  const chosen = query.data && rowsOf(query.data).find((one) => one.id === tokensOf);
  return (
    <>
      <Panel title="Service accounts" meta="for CI and robots; they have tokens only" right={manages && <button type="button" className="btn sm" onClick={() => setOpen({ kind: "new" })}><Icon name="plus" size={12} />New account</button>}>
        <Loadable query={query} what="The list of service accounts" skeleton={<Skeleton height={26} count={2} />}>
          {(data) => rowsOf(data).length === 0 ? <p className="empty">There are none.</p> : <Table rows={rowsOf(data)} manages={manages} tokensOf={tokensOf} onTokens={setTokensOf} onOpen={setOpen} />}
        </Loadable>
        <More query={query} label="More accounts" />
        {chosen && <AccountTokens key={chosen.id} project={project} account={chosen} manages={manages} />}
      </Panel>
      {open?.kind === "new" && <NewForm project={project} onClose={close} />}
      {open?.kind === "change" && <RoleForm project={project} account={open.account} onClose={close} />}
      {open?.kind === "stop" && <StopDialog project={project} account={open.account} onClose={close} />}
    </>
  );
}

interface TableProps {
  rows: ServiceAccount[];
  manages: boolean;
  tokensOf: number | null;
  onTokens: (id: number | null) => void;
  onOpen: (open: Open) => void;
}

function Table({ rows, manages, tokensOf, onTokens, onOpen }: TableProps) {
  const now = useNow(30_000);
  return (
    <div className="tw" tabIndex={0}>
      <table className="t cards">
        <thead><tr><th scope="col">Name</th><th scope="col">Owner of jobs as</th><th scope="col">Role</th><th scope="col" className="ra">Tokens</th><th scope="col" className="ra">Made</th><th scope="col"><span className="vh">Action</span></th></tr></thead>
        <tbody>
          {rows.map((one) => (
            <tr key={one.id}>
              <td className="wide" style={{ fontWeight: 500 }}><Name>{one.name}</Name>{!one.is_active && <span className="chip warn" style={{ marginLeft: 6 }}>deactivated</span>}</td>
              <td className="mono wide" style={{ fontSize: 12 }}><Name>{one.email}</Name></td>
              <td data-l="Role">{one.role}</td>
              <td className="ra" data-l="Tokens">{integer(one.tokens)}</td>
              <td className="ra" data-l="Made">{moment(new Date(one.created_at), now)}</td>
              <td className="ra acts">
                <button type="button" className="btn sm" aria-expanded={tokensOf === one.id} aria-label={`Tokens of ${isolated(one.name)}`} onClick={() => onTokens(tokensOf === one.id ? null : one.id)}>Tokens</button>{" "}
                {manages && <button type="button" className="btn sm" aria-label={`Change ${isolated(one.name)}`} onClick={() => onOpen({ kind: "change", account: one })}>Change</button>}{" "}
                {manages && one.is_active && <button type="button" className="btn sm bad" aria-label={`Deactivate ${isolated(one.name)}`} onClick={() => onOpen({ kind: "stop", account: one })}>Deactivate</button>}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function NewForm({ project, onClose }: { project: ProjectDetail; onClose: () => void }) {
  const add = useAddAccount(project.key);
  const [name, setName] = useState("");
  const [role, setRole] = useState<Role>("member");
  const { at, rest } = problemsOf(add.error, ["name", "role"]);
  return (
    <FormDialog title="New service account" action="Create" fault={rest} busy={add.isPending} onSubmit={() => add.mutate({ name: name.trim(), role }, { onSuccess: onClose })} onClose={onClose}>
      <Text label="Name" value={name} onChange={setName} required placeholder="ci" error={at.name} />
      <Choice label="Role" value={role} onChange={(value) => setRole(value as Role)} options={ROLES} error={at.role} />
      <p className="sub" style={{ flexBasis: "100%" }}>It cannot sign in: it works with tokens only, in <Name>{project.name}</Name> and below.</p>
    </FormDialog>
  );
}

function RoleForm({ project, account, onClose }: { project: ProjectDetail; account: ServiceAccount; onClose: () => void }) {
  const change = useChangeAccount(project.key);
  const [role, setRole] = useState<Role>(account.role);
  const { at, rest } = problemsOf(change.error, ["role"]);
  const submit = () => change.mutate({ id: account.id, role, ...(account.is_active ? {} : { is_active: true }) }, { onSuccess: onClose });
  return (
    <FormDialog title={`Change ${isolated(account.name)}`} action={account.is_active ? "Save" : "Use it again"} fault={rest} busy={change.isPending} onSubmit={submit} onClose={onClose}>
      <Choice label="Role" value={role} onChange={(value) => setRole(value as Role)} options={ROLES} error={at.role} />
      {!account.is_active && <p className="sub" style={{ flexBasis: "100%" }}>It is in use again then; its old tokens stay revoked.</p>}
    </FormDialog>
  );
}

function StopDialog({ project, account, onClose }: { project: ProjectDetail; account: ServiceAccount; onClose: () => void }) {
  const change = useChangeAccount(project.key);
  return (
    <AskDialog
      title={`Deactivate ${isolated(account.name)}?`} keep="Keep it" action="Deactivate" error={change.error} busy={change.isPending}
      onDo={() => change.mutate({ id: account.id, is_active: false }, { onSuccess: onClose })} onClose={onClose}
    >
      Its {account.tokens === 1 ? "token stops" : `${integer(account.tokens)} tokens stop`} working at once, for good. Its jobs stay with <Name>{project.name}</Name> and keep running.
    </AskDialog>
  );
}
