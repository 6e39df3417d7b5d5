import { useState } from "react";
import { useInvitations, useInvite, useWithdraw } from "../../api/projectHooks";
import { rowsOf } from "../../api/pages";
import type { Invitation, NewInvitation, ProjectDetail } from "../../api/types";
import { More } from "../../components/More";
import { Loadable, Panel, Skeleton } from "../../components/Panel";
import { useNow } from "../../lib/clock";
import { moment } from "../../lib/format";
import { stateOf, type InvitationState } from "./invitation";
import { InvitationLink } from "../../components/InvitationLink";
import { Name } from "../../components/Name";
import { isolated } from "../../lib/isolated";

/** Who was invited by a link, and what has become of it. */
export function InvitationsPanel({ project, manages }: { project: ProjectDetail; manages: boolean }) {
  const query = useInvitations(project.key);
  const [made, setMade] = useState<NewInvitation | null>(null);
  return (
    <>
      {made && <InvitationLink invitation={made} onDone={() => setMade(null)} />}
      <Panel title="Invitations" meta="newest first">
        <Loadable query={query} what="The list of invitations" skeleton={<Skeleton height={26} count={2} />}>
          {(data) => rowsOf(data).length === 0 ? <p className="empty">No open invitations. Adding a person without an account invites them.</p> : <Table rows={rowsOf(data)} project={project} manages={manages} onMade={setMade} />}
        </Loadable>
        <More query={query} label="Older invitations" />
      </Panel>
    </>
  );
}

interface TableProps {
  rows: Invitation[];
  project: ProjectDetail;
  manages: boolean;
  onMade: (invitation: NewInvitation) => void;
}

function Table({ rows, project, manages, onMade }: TableProps) {
  const now = useNow(30_000);
  const again = useInvite();
  const withdraw = useWithdraw(project.key);
  const error = again.error ?? withdraw.error;
  return (
    <div className="tw" tabIndex={0}>
      <table className="t cards">
        <thead><tr><th scope="col">E-mail</th><th scope="col">As</th><th scope="col">By</th><th scope="col" className="ra">Sent</th><th scope="col">State</th>{manages && <th scope="col"><span className="vh">Action</span></th>}</tr></thead>
        <tbody>
          {rows.map((one) => {
            const state = stateOf(one, now);
            return (
              <tr key={one.id}>
                <td className="wide" style={{ fontWeight: 500 }}><Name>{one.email}</Name></td>
                <td data-l="As">{one.role}</td>
                <td className="wide"><Name>{one.invited_by}</Name></td>
                <td className="ra" data-l="Sent">{moment(new Date(one.created_at), now)}</td>
                <td data-l="State"><State state={state} until={moment(new Date(one.expires_at), now)} /></td>
                {manages && (
                  <td className="ra acts">
                    {state !== "accepted" && <button type="button" className="btn sm" aria-label={`Resend to ${isolated(one.email)}`} title="A new link; the old one stops working" disabled={again.isPending} onClick={() => again.mutate({ project: project.key, email: one.email, role: one.role }, { onSuccess: onMade })}>Resend</button>}{" "}
                    {state === "open" && <button type="button" className="btn sm bad" aria-label={`Withdraw the invitation of ${isolated(one.email)}`} disabled={withdraw.isPending} onClick={() => withdraw.mutate(one.id)}>Withdraw</button>}
                  </td>
                )}
              </tr>
            );
          })}
        </tbody>
      </table>
      {error && <div className="fault" role="alert" style={{ marginTop: 8 }}>{error.message}</div>}
    </div>
  );
}

function State({ state, until }: { state: InvitationState; until: string }) {
  if (state === "open") return <span className="chip acc">open until {until}</span>;
  if (state === "accepted") return <span className="chip good">accepted</span>;
  return <span className="chip">{state === "withdrawn" ? "withdrawn" : `ended ${until}`}</span>;
}
