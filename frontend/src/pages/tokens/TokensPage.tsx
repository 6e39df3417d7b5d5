import { Modal } from "@mantine/core";
import { useState, type FormEvent } from "react";
import { useCreateToken, useRevokeToken, useRotateToken, useTokens } from "../../api/hooks";
import type { ApiToken, NewToken, Session } from "../../api/types";
import { OnceShown } from "../../components/OnceShown";
import { Loadable, Panel, Skeleton } from "../../components/Panel";
import { dateTime, moment, relative } from "../../lib/format";
import { BrowsersPanel } from "./BrowsersPanel";
import { TopBar } from "../../shell/TopBar";
import { Name } from "../../components/Name";
import { isolated } from "../../lib/isolated";

const LIFETIMES = [{ label: "30 days", days: 30 }, { label: "90 days", days: 90 }, { label: "a year", days: 366 }];
const SCOPES: { value: ApiToken["scopes"][number]; label: string }[] = [
  { value: "jobs:read", label: "read jobs" }, { value: "jobs:write", label: "submit and change jobs" }, { value: "admin", label: "administer" },
];

export default function TokensPage({ projects }: { projects: Session["projects"] }) {
  const tokens = useTokens();
  const rotate = useRotateToken();
  const [made, setMade] = useState<NewToken | null>(null);
  const [revoking, setRevoking] = useState<ApiToken | null>(null);
  return (
    <>
      <TopBar title="API tokens" />
      <div className="page" style={{ maxWidth: 920 }}>
        <h1 className="say"><b>Tokens let programs act as you</b>: the evenkeel command, scripts and CI. Each is shown once, when it is made.</h1>
        {made && <OnceShown label="The new token" secret={made.secret} onDone={() => setMade(null)}><b style={{ fontWeight: 600 }}><Name>{made.name}</Name></b> is made.</OnceShown>}
        <CreateForm projects={projects} onMade={setMade} />
        {rotate.error && <div className="fault" role="alert">{rotate.error.message}</div>}
        <Panel title="Your tokens">
          <Loadable query={tokens} what="The list of tokens" skeleton={<Skeleton height={26} count={3} />}>
            {(list) => list.length === 0 ? <p className="empty">You have no tokens.</p> : (
              <div className="tw" tabIndex={0}>
                <table className="t cards">
                  <thead><tr><th scope="col">Name</th><th scope="col">Begins with</th><th scope="col">For</th><th scope="col" className="ra">Made</th><th scope="col" className="ra">Last used</th><th scope="col" className="ra">Ends</th><th scope="col"><span className="vh">Action</span></th></tr></thead>
                  <tbody>{list.map((token) => <Row key={token.id} token={token} onRotate={() => rotate.mutate(token.id, { onSuccess: setMade })} onRevoke={() => setRevoking(token)} />)}</tbody>
                </table>
              </div>
            )}
          </Loadable>
        </Panel>
        <BrowsersPanel />
        <RevokeDialog token={revoking} onClose={() => setRevoking(null)} />
      </div>
    </>
  );
}

function Row({ token, onRotate, onRevoke }: { token: ApiToken; onRotate: () => void; onRevoke: () => void }) {
  const now = new Date();
  const ended = token.expires_at !== null && new Date(token.expires_at) <= now;
  const made = new Date(token.created_at);
  return (
    <tr>
      <td className="wide" style={{ fontWeight: 500 }}><Name>{token.name}</Name></td>
      <td className="mono" style={{ fontSize: 12 }} data-l="Begins with">{token.prefix}</td>
      <td data-l="For" style={{ fontSize: 12 }}>{token.scopes.join(", ")}{token.project && <span className="sub"> in {token.project}</span>}</td>
      <td className="ra" data-l="Made" title={dateTime(made)}>{moment(made, now)}</td>
      <td className="ra" data-l="Last used" title={token.last_used_address ?? undefined}>{token.last_used_at ? relative(new Date(token.last_used_at), now) : <span className="sub">never</span>}</td>
      <td className="ra" data-l="Ends">{token.revoked_at ? <span className="chip">revoked</span> : ended ? <span className="chip warn">ended</span> : token.expires_at ? moment(new Date(token.expires_at), now) : <span className="sub">no end</span>}</td>
      <td className="ra" style={{ whiteSpace: "nowrap" }}>{!token.revoked_at && !ended && <button type="button" className="btn sm" title="A new one in its place; this one works for 24 hours more" onClick={onRotate}>Rotate</button>} {!token.revoked_at && <button type="button" className="btn sm bad" onClick={onRevoke}>Revoke</button>}</td>
    </tr>
  );
}

function CreateForm({ projects, onMade }: { projects: Session["projects"]; onMade: (token: NewToken) => void }) {
  const create = useCreateToken();
  const [name, setName] = useState("");
  const [days, setDays] = useState("90");
  const [scopes, setScopes] = useState<ApiToken["scopes"]>(["jobs:read", "jobs:write"]);
  const [project, setProject] = useState("");
  const toggle = (scope: ApiToken["scopes"][number]) =>
    setScopes(scopes.includes(scope) ? scopes.filter((one) => one !== scope) : [...scopes, scope]);
  const submit = (event: FormEvent) => {
    event.preventDefault();
    create.mutate({ name: name.trim(), expires_in_days: Number(days), scopes, project: project || null }, { onSuccess: (token) => { setName(""); onMade(token); } });
  };
  return (
    <Panel title="New token">
      <form className="pb" onSubmit={submit} style={{ display: "flex", gap: 12, alignItems: "flex-end", flexWrap: "wrap" }}>
        <div className="f grow" style={{ minWidth: 180 }}>
          <label htmlFor="token-name">Name</label>
          <input id="token-name" className="in" required maxLength={80} placeholder="what it is for, as ci" value={name} onChange={(event) => setName(event.target.value)} />
        </div>
        <div className="f" style={{ width: 130 }}>
          <label htmlFor="token-days">Valid for</label>
          <select id="token-days" className="in" value={days} onChange={(event) => setDays(event.target.value)}>
            {LIFETIMES.map((entry) => <option key={entry.label} value={entry.days}>{entry.label}</option>)}
          </select>
        </div>
        <div className="f" style={{ width: 160 }}>
          <label htmlFor="token-project">Works in</label>
          <select id="token-project" className="in" value={project} onChange={(event) => setProject(event.target.value)}>
            <option value="">all my projects</option>
            {projects.map((one) => <option key={one.key} value={one.key}>{one.name}</option>)}
          </select>
        </div>
        <fieldset style={{ border: 0, padding: 0, display: "flex", gap: 12, flexBasis: "100%", flexWrap: "wrap" }}>
          <legend className="vh">It may</legend>
          {SCOPES.map((scope) => (
            <label key={scope.value} style={{ display: "flex", gap: 6, alignItems: "center" }}>
              <input type="checkbox" checked={scopes.includes(scope.value)} onChange={() => toggle(scope.value)} />{scope.label}
            </label>
          ))}
        </fieldset>
        <button type="submit" className="btn pri" style={{ height: 32 }} disabled={create.isPending || scopes.length === 0}>Make token</button>
      </form>
      {create.error && <div className="fault" role="alert">{create.error.message}</div>}
    </Panel>
  );
}

function RevokeDialog({ token, onClose }: { token: ApiToken | null; onClose: () => void }) {
  const revoke = useRevokeToken();
  return (
    <Modal opened={token !== null} onClose={onClose} title={`Revoke ${isolated(token?.name ?? "")}?`} size={400} closeButtonProps={{ "aria-label": "Close" }}>
      <div style={{ display: "grid", gap: 14 }}>
        <p style={{ color: "var(--ink-2)" }}>Programs that use it are refused at once. This cannot be undone.</p>
        {revoke.error && <div className="fault" role="alert" style={{ margin: 0 }}>{revoke.error.message}</div>}
        <div style={{ display: "flex", gap: 8, justifyContent: "flex-end" }}>
          <button type="button" className="btn" onClick={onClose} data-autofocus>Keep it</button>
          <button type="button" className="btn danger" disabled={revoke.isPending} onClick={() => token && revoke.mutate(token.id, { onSuccess: onClose })}>Revoke the token</button>
        </div>
      </div>
    </Modal>
  );
}
