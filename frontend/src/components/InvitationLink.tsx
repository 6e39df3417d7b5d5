import type { NewInvitation } from "../api/types";
import { OnceShown } from "./OnceShown";
import { Name } from "./Name";

/** What came of an invitation: it was mailed, or there is a link to pass on. */
export function InvitationLink({ invitation, onDone }: { invitation: NewInvitation; onDone: () => void }) {
  const who = <><b style={{ fontWeight: 600 }}><Name>{invitation.email}</Name></b> is invited as {invitation.role}.</>;
  if (invitation.link !== null) {
    return <OnceShown label="The invitation" secret={invitation.link} onDone={onDone}>{who} The portal sends no e-mail: pass the link on. The person who opens it gets the account, so the address stays marked as unproved.</OnceShown>;
  }
  return (
    <section className="panel" aria-label="The invitation">
      <div className="pb" style={{ paddingTop: 12, display: "flex", gap: 8, alignItems: "center", flexWrap: "wrap" }}>
        <p role="status">{who} The link was mailed to them, and only they have it.</p>
        <button type="button" className="btn plain" onClick={onDone}>Done</button>
      </div>
    </section>
  );
}
