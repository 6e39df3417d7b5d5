import type { NewInvitation } from "../../api/types";
import { OnceShown } from "../../components/OnceShown";

/** The link that lets somebody in, for whoever made it. */
export function InvitationLink({ invitation, onDone }: { invitation: NewInvitation; onDone: () => void }) {
  return (
    <OnceShown label="The invitation" secret={invitation.link} onDone={onDone}>
      <b style={{ fontWeight: 600 }}>{invitation.email}</b> is invited as {invitation.role}. {invitation.mailed ? "The link was mailed too." : "The portal sends no e-mail: pass the link on."}
    </OnceShown>
  );
}
