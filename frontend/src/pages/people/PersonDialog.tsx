import type { ReactNode } from "react";
import { useChangePerson, useEndSessions } from "../../api/adminHooks";
import type { Account } from "../../api/types";
import { AskDialog } from "../../components/AskDialog";
import { isolated } from "../../lib/isolated";

export interface Act {
  kind: "make" | "unmake" | "end" | "deactivate" | "reactivate";
  person: Account;
}

interface Words {
  title: string;
  action: string;
  what: ReactNode;
}

function wordsOf({ kind, person }: Act): Words {
  switch (kind) {
    case "make": return { title: `Make ${isolated(person.name)} an administrator?`, action: "Make administrator", what: `${person.provenance === null ? "" : `${person.provenance} Ask them whether the account is theirs. `}They can then see and change everything in this cluster: all projects and jobs, the policy, prices and people.` };
    case "unmake": return { title: `Unmake ${isolated(person.name)} an administrator?`, action: "Unmake administrator", what: "They keep the roles that they were given in projects, and nothing else." };
    case "end": return { title: `End all sessions of ${isolated(person.name)}?`, action: "End sessions", what: "They are signed out in every browser, at once. Their tokens keep working, and they can sign in again." };
    case "deactivate": return { title: `Deactivate ${isolated(person.name)}?`, action: "Deactivate", what: "Their tokens are revoked and their sessions end, at once. Their jobs stay with their projects and keep running. Once reactivated, they sign in again and make new tokens." };
    case "reactivate": return { title: `Reactivate ${isolated(person.name)}?`, action: "Reactivate", what: "They can sign in again, with the roles that they had. They need new tokens." };
  }
}

/** Says what an act does to somebody before it is done. */
export function PersonDialog({ act, onClose }: { act: Act; onClose: () => void }) {
  const change = useChangePerson();
  const end = useEndSessions();
  const { title, action, what } = wordsOf(act);
  const { id, provenance } = act.person;
  const done = { onSuccess: onClose };
  const perform = () => {
    switch (act.kind) {
      case "make": return change.mutate({ id, is_admin: true, ...(provenance !== null && { confirm_unproved: true }) }, done);
      case "unmake": return change.mutate({ id, is_admin: false }, done);
      case "end": return end.mutate(id, done);
      case "deactivate": return change.mutate({ id, is_active: false }, done);
      case "reactivate": return change.mutate({ id, is_active: true }, done);
    }
  };
  return <AskDialog title={title} keep="Leave it" action={action} error={change.error ?? end.error} busy={change.isPending || end.isPending} mild={act.kind === "make" || act.kind === "reactivate"} onDo={perform} onClose={onClose}>{what}</AskDialog>;
}
