import type { Invitation } from "../../api/types";

export type InvitationState = "open" | "accepted" | "withdrawn" | "ended";

/** What has become of it. */
export function stateOf(invitation: Pick<Invitation, "accepted_at" | "revoked_at" | "expires_at">, now: Date): InvitationState {
  if (invitation.accepted_at !== null) return "accepted";
  if (invitation.revoked_at !== null) return "withdrawn";
  return Date.parse(invitation.expires_at) > now.getTime() ? "open" : "ended";
}
