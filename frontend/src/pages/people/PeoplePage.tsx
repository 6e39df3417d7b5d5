import { useState } from "react";
import { Link, useSearchParams } from "react-router";
import { usePeople } from "../../api/adminHooks";
import { rowsOf } from "../../api/pages";
import type { Account, NewInvitation, Session } from "../../api/types";
import { Icon } from "../../components/icons";
import { More } from "../../components/More";
import { Loadable, Panel, SentenceWaits, Skeleton } from "../../components/Panel";
import { SearchField } from "../../components/SearchField";
import { UnprovedMark } from "../../components/UnprovedMark";
import { useNow } from "../../lib/clock";
import { count, dateTime, integer, relative } from "../../lib/format";
import { TopBar } from "../../shell/TopBar";
import { InvitationLink } from "../../components/InvitationLink";
import { AccountDialog } from "./AccountDialog";
import { InviteForm } from "./InviteForm";
import { PersonDialog, type Act } from "./PersonDialog";
import { Name } from "../../components/Name";
import { isolated } from "../../lib/isolated";

const WHO = [
  { key: "", label: "Active", is_active: true, is_admin: null },
  { key: "admin", label: "Administrators", is_active: true, is_admin: true },
  { key: "gone", label: "Deactivated", is_active: false, is_admin: null },
] as const;

/** Everybody with an account. Whom the list shows lives in the address. */
export default function PeoplePage({ session }: { session: Session }) {
  const [params, setParams] = useSearchParams();
  const [inviting, setInviting] = useState(false);
  const [invited, setInvited] = useState<NewInvitation | null>(null);
  const [act, setAct] = useState<Act | null>(null);
  const [named, setNamed] = useState<Account | null>(null);
  const search = params.get("search") ?? "";
  const who = WHO.find((one) => one.key === params.get("who")) ?? WHO[0];
  const query = usePeople({ search, kind: "person", is_active: who.is_active, is_admin: who.is_admin });
  const administrators = usePeople({ search: "", kind: "person", is_active: true, is_admin: true });
  const set = (name: string, value: string) => setParams((old) => {
    if (value) old.set(name, value);
    else old.delete(name);
    return old;
  }, { replace: true });
  return (
    <>
      <TopBar title="People" />
      <div className="page">
        {administrators.data ? <Sentence rows={rowsOf(administrators.data)} more={administrators.hasNextPage} /> : <SentenceWaits />}
        {invited && <InvitationLink invitation={invited} onDone={() => setInvited(null)} />}
        <Panel
          title="People" meta="newest first"
          right={<><SearchField label="Name or e-mail" value={search} onChange={(text) => set("search", text)} /><button type="button" className="btn sm" onClick={() => setInviting(true)}><Icon name="plus" size={12} />Invite</button></>}
        >
          <div className="pb" style={{ overflowX: "auto" }}>
            <div className="seg" role="group" aria-label="Who">
              {WHO.map((one) => <button key={one.key} type="button" aria-pressed={one === who} onClick={() => set("who", one.key)}><Name>{one.label}</Name></button>)}
            </div>
          </div>
          <Loadable query={query} what="The list of people" skeleton={<Skeleton height={26} count={6} />}>
            {(data) => rowsOf(data).length === 0 ? <p className="empty">{search ? `No one here has “${isolated(search)}” in their name or e-mail.` : "There are no accounts."}</p> : <Table rows={rowsOf(data)} me={session.user?.email ?? ""} onAct={setAct} onName={session.runs_as_person ? setNamed : null} />}
          </Loadable>
          <More query={query} label="More people" />
        </Panel>
        {inviting && <InviteForm onInvited={setInvited} onClose={() => setInviting(false)} />}
        {act && <PersonDialog act={act} onClose={() => setAct(null)} />}
        {named && <AccountDialog person={named} onClose={() => setNamed(null)} />}
      </div>
    </>
  );
}

function Sentence({ rows, more }: { rows: Account[]; more: boolean }) {
  const many = more ? `More than ${integer(rows.length)} people administer` : `${count(rows.length, "person", "people")} ${rows.length === 1 ? "administers" : "administer"}`;
  return <h1 className="say"><b>{many} this cluster</b>{rows.length <= 3 && `: ${rows.map((one) => isolated(one.name)).join(", ")}`}. {rows.length === 1 && !more ? "Make another person administrator too, in case they leave." : "Deactivate people who leave; their jobs stay with their projects."}</h1>;
}

/** `onName`: sets somebody's UNIX account; null where jobs run as nobody's. */
function Table({ rows, me, onAct, onName }: { rows: Account[]; me: string; onAct: (act: Act) => void; onName: ((person: Account) => void) | null }) {
  const now = useNow(30_000);
  return (
    <div className="tw" tabIndex={0}>
      <table className="t cards">
        <thead><tr><th scope="col">Name</th><th scope="col">E-mail</th><th scope="col">Projects</th>{onName && <th scope="col">UNIX account</th>}<th scope="col" className="ra">Last sign-in</th><th scope="col"><span className="vh">Action</span></th></tr></thead>
        <tbody>
          {rows.map((person) => (
            <tr key={person.id}>
              <td className="wide" style={{ fontWeight: 500 }}>
                <Name>{person.name}</Name>{person.email === me && <span className="sub">you</span>}
                {person.is_admin && <span className="chip acc" style={{ marginLeft: 6 }} title={person.admin_by_directory ? "By their groups" : undefined}>administrator</span>}
                {!person.is_active && <span className="chip warn" style={{ marginLeft: 6 }}>deactivated</span>}
              </td>
              <td className="wide"><Name>{person.email}</Name>{person.provenance !== null && <UnprovedMark provenance={person.provenance} />}</td>
              <td className="wide" style={{ fontSize: 12 }}><Projects person={person} /></td>
              {onName && <td className="whole" data-l="UNIX account"><button type="button" className={`btn sm${person.unix_account === null ? " bad" : ""}`} aria-label={`UNIX account: ${isolated(person.name)}`} onClick={() => onName(person)}><Name>{person.unix_account ?? "none"}</Name></button></td>}
              <td className="ra" data-l="Last sign-in" title={person.last_sign_in_at ? dateTime(new Date(person.last_sign_in_at)) : undefined}>{person.last_sign_in_at ? relative(new Date(person.last_sign_in_at), now) : <span className="sub">never</span>}</td>
              <td className="ra acts"><Actions person={person} onAct={onAct} /></td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

const FIRST = 3;

function Projects({ person }: { person: Account }) {
  if (person.projects.length === 0) return <span className="sub" style={{ margin: 0 }}>none</span>;
  const rest = person.projects.length - FIRST;
  return (
    <span title={person.projects.map((one) => `${isolated(one.name)}: ${one.role}`).join("\n")}>
      {person.projects.slice(0, FIRST).map((one, i) => <span key={`${one.key}/${one.role}`}>{i > 0 && ", "}<Link className="link" to={`/projects/${one.key}`}><Name>{one.name}</Name></Link> {one.role}</span>)}
      {rest > 0 && <span className="sub">and {person.more_projects ? "more than " : ""}{integer(rest)} more</span>}
    </span>
  );
}

function Actions({ person, onAct }: { person: Account; onAct: (act: Act) => void }) {
  const button = (kind: Act["kind"], text: string, bad = false) => (
    <button type="button" className={`btn sm${bad ? " bad" : ""}`} aria-label={`${text}: ${isolated(person.name)}`} onClick={() => onAct({ kind, person })}>{text}</button>
  );
  if (!person.is_active) return button("reactivate", "Reactivate");
  return <>{person.is_admin ? button("unmake", "Unmake administrator") : button("make", "Make administrator")}{" "}{button("end", "End sessions")}{" "}{button("deactivate", "Deactivate", true)}</>;
}
