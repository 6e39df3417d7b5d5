import { useState, type FormEvent } from "react";
import { useMakeServiceToken, useRevokeServiceToken, useRotateServiceToken, useServiceTokens } from "../../api/projectHooks";
import { rowsOf } from "../../api/pages";
import type { ApiToken, NewToken, ProjectDetail, ServiceAccount } from "../../api/types";
import { AskDialog } from "../../components/AskDialog";
import { More } from "../../components/More";
import { OnceShown } from "../../components/OnceShown";
import { Loadable, Skeleton } from "../../components/Panel";
import { Choice, Text } from "../../components/TextField";
import { useNow } from "../../lib/clock";
import { moment, relative } from "../../lib/format";
import { problemsOf } from "../../lib/problem";
import { Name } from "../../components/Name";
import { isolated } from "../../lib/isolated";

const LIFETIMES: [string, string][] = [["30", "30 days"], ["90", "90 days"], ["366", "a year"]];
const USES: [string, string][] = [["jobs:read", "read jobs"], ["jobs:read jobs:write", "read, submit and change jobs"], ["jobs:read jobs:write admin", "all that its role allows"]];

interface Props {
  project: ProjectDetail;
  account: ServiceAccount;
  manages: boolean;
}

/** The tokens of one service account. Each is shown once, when it is made. */
export function AccountTokens({ project, account, manages }: Props) {
  const query = useServiceTokens(project.key, account.id);
  const rotate = useRotateServiceToken();
  const [made, setMade] = useState<NewToken | null>(null);
  const [revoking, setRevoking] = useState<ApiToken | null>(null);
  return (
    <section className="block" aria-label={`Tokens of ${isolated(account.name)}`}>
      <h3 className="lab1">Tokens of <Name>{account.name}</Name></h3>
      {made && <OnceShown label="The new token" secret={made.secret} onDone={() => setMade(null)}><b style={{ fontWeight: 600 }}><Name>{made.name}</Name></b> is made.</OnceShown>}
      <Loadable query={query} what="The list of tokens" skeleton={<Skeleton height={26} count={2} />}>
        {(data) => rowsOf(data).length === 0 ? <p className="sub">It has none, so nothing can use it.</p> : <Table rows={rowsOf(data)} manages={manages} busy={rotate.isPending} onRotate={(token) => rotate.mutate(token.id, { onSuccess: setMade })} onRevoke={setRevoking} />}
      </Loadable>
      <More query={query} label="Older tokens" />
      {rotate.error && <div className="fault" role="alert" style={{ margin: 0 }}>{rotate.error.message}</div>}
      {manages && account.is_active && <MakeForm project={project} account={account} onMade={setMade} />}
      {revoking && <RevokeDialog token={revoking} onClose={() => setRevoking(null)} />}
    </section>
  );
}

interface TableProps {
  rows: ApiToken[];
  manages: boolean;
  busy: boolean;
  onRotate: (token: ApiToken) => void;
  onRevoke: (token: ApiToken) => void;
}

function Table({ rows, manages, busy, onRotate, onRevoke }: TableProps) {
  const now = useNow(30_000);
  return (
    <div className="tw" tabIndex={0}>
      <table className="t cards flush">
        <thead><tr><th scope="col">Name</th><th scope="col">Begins with</th><th scope="col">For</th><th scope="col" className="ra">Last used</th><th scope="col" className="ra">Ends</th>{manages && <th scope="col"><span className="vh">Action</span></th>}</tr></thead>
        <tbody>
          {rows.map((token) => {
            const ended = token.expires_at !== null && Date.parse(token.expires_at) <= now.getTime();
            return (
              <tr key={token.id}>
                <td className="wide" style={{ fontWeight: 500 }}><Name>{token.name}</Name></td>
                <td className="mono" style={{ fontSize: 12 }} data-l="Begins with">{token.prefix}</td>
                <td data-l="For" style={{ fontSize: 12 }}>{token.scopes.join(", ")}{token.project && <span className="sub">in {token.project}</span>}</td>
                <td className="ra" data-l="Last used" title={token.last_used_address ?? undefined}>{token.last_used_at ? relative(new Date(token.last_used_at), now) : <span className="sub">never</span>}</td>
                <td className="ra" data-l="Ends">{ended ? <span className="chip warn">ended</span> : token.expires_at ? moment(new Date(token.expires_at), now) : <span className="sub">no end</span>}</td>
                {manages && (
                  <td className="ra acts">
                    {!ended && <button type="button" className="btn sm" aria-label={`Rotate ${isolated(token.name)}`} title="A new one in its place; this one works for 24 hours more" disabled={busy} onClick={() => onRotate(token)}>Rotate</button>}{" "}
                    <button type="button" className="btn sm bad" aria-label={`Revoke ${isolated(token.name)}`} onClick={() => onRevoke(token)}>Revoke</button>
                  </td>
                )}
              </tr>
            );
          })}
        </tbody>
      </table>
    </div>
  );
}

function MakeForm({ project, account, onMade }: { project: ProjectDetail; account: ServiceAccount; onMade: (token: NewToken) => void }) {
  const make = useMakeServiceToken(project.key, account.id);
  const [name, setName] = useState("");
  const [days, setDays] = useState("90");
  const [uses, setUses] = useState("jobs:read jobs:write");
  const { at, rest } = problemsOf(make.error, ["name", "expires_in_days", "scopes"]);
  const submit = (event: FormEvent) => {
    event.preventDefault();
    const wish = { name: name.trim(), expires_in_days: Number(days), scopes: uses.split(" ") as ApiToken["scopes"] };
    make.mutate(wish, { onSuccess: (token) => { setName(""); onMade(token); } });
  };
  return (
    <form onSubmit={submit} style={{ display: "flex", gap: 12, alignItems: "flex-end", flexWrap: "wrap" }}>
      <Text label="Name of a new token" value={name} onChange={setName} required placeholder="what it is for" error={at.name} />
      <Choice label="Valid for" value={days} onChange={setDays} options={LIFETIMES} error={at.expires_in_days} />
      <Choice label="It may" value={uses} onChange={setUses} options={USES} error={at.scopes} />
      <button type="submit" className="btn" style={{ height: 32 }} disabled={make.isPending}>Make token</button>
      {rest && <div className="fault" role="alert" style={{ margin: 0, flexBasis: "100%" }}>{rest}</div>}
    </form>
  );
}

function RevokeDialog({ token, onClose }: { token: ApiToken; onClose: () => void }) {
  const revoke = useRevokeServiceToken();
  return (
    <AskDialog
      title={`Revoke ${isolated(token.name)}?`} keep="Keep it" action="Revoke the token" error={revoke.error} busy={revoke.isPending}
      onDo={() => revoke.mutate(token.id, { onSuccess: onClose })} onClose={onClose}
    >
      Programs that use it are refused at once. This cannot be undone.
    </AskDialog>
  );
}
