import { useState, type FormEvent } from "react";
import { useAcceptInvitation, useInvitation } from "../../api/hooks";
import type { OpenInvitation, Session } from "../../api/types";
import { Logo } from "../../components/icons";
import { moment } from "../../lib/format";
import { ThemeToggle } from "../../shell/ThemeToggle";
import { TrustChip } from "../../shell/TrustChip";
import css from "../../theme/signin.module.css";
import { Name } from "../../components/Name";

/** What an invitation's link leads to. The secret is behind #, which browsers send to no server. */
export function Invitation({ session }: { session: Session }) {
  const secret = window.location.hash.slice(1);
  const invitation = useInvitation(secret);
  const problem = secret ? invitation.error?.message : "The link is incomplete: copy it whole.";
  return (
    <main className={css.page}>
      <div className={css.corner}><ThemeToggle /></div>
      <section className={css.card} aria-labelledby="invitation-title" aria-busy={invitation.isLoading}>
        <div className={css.brand}><Logo size={28} /><span>Evenkeel</span></div>
        <h1 id="invitation-title" className={css.title}>{problem ? "This link does not work" : "You are invited"}</h1>
        {problem && <div role="alert" className={css.error}>{problem}</div>}
        {problem && <a href="/">{session.user ? "To the overview" : "To the sign-in"}</a>}
        {invitation.data && <Accept secret={secret} invitation={invitation.data} session={session} />}
      </section>
      {session.single_trust_mode && <footer className={css.foot}><TrustChip /></footer>}
    </main>
  );
}

function Accept({ secret, invitation, session }: { secret: string; invitation: OpenInvitation; session: Session }) {
  const accept = useAcceptInvitation();
  const [name, setName] = useState("");
  const [password, setPassword] = useState("");
  const { user } = session;
  const submit = (event: FormEvent) => {
    event.preventDefault();
    accept.mutate(user ? { secret } : { secret, name: name.trim(), password });
  };
  return (
    <form onSubmit={submit} aria-label="Accept the invitation" style={{ display: "grid", gap: 14 }}>
      <p className={css.lead}>
        <Name>{invitation.invited_by}</Name> invites <Name>{invitation.email}</Name> to <b><Name>{invitation.project_name}</Name></b> as {invitation.role}, until {moment(new Date(invitation.expires_at), new Date())}.
      </p>
      {user ? <p className={css.hint}>You are signed in as <Name>{user.email}</Name>.</p> : (
        <>
          <p className={css.hint}>Choose a password, and you are in. If you have an account here, <a href="/">sign in</a> first and open the link again.</p>
          <div className="f">
            <label htmlFor="name">Name</label>
            <input id="name" name="name" className="in" autoComplete="name" maxLength={150} value={name} onChange={(event) => setName(event.target.value)} />
          </div>
          <div className="f">
            <label htmlFor="password">Password</label>
            <input id="password" name="password" type="password" className="in" autoComplete="new-password" required minLength={10} value={password} onChange={(event) => setPassword(event.target.value)} />
          </div>
        </>
      )}
      <div role="alert" className={css.error}>{accept.error?.message}</div>
      <button type="submit" className="btn pri" style={{ justifyContent: "center", height: 34 }} disabled={accept.isPending}>
        {user ? "Join" : "Make the account"}
      </button>
    </form>
  );
}
