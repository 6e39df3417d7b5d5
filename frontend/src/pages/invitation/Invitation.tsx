import { useState, type FormEvent } from "react";
import { useAcceptInvitation } from "../../api/hooks";
import type { Session } from "../../api/types";
import { Logo } from "../../components/icons";
import { ThemeToggle } from "../../shell/ThemeToggle";
import css from "../signin/signin.module.css";

/** What an invitation's link leads to. The secret is behind #, which browsers send to no server. */
export function Invitation({ session }: { session: Session }) {
  const accept = useAcceptInvitation();
  const [name, setName] = useState("");
  const [password, setPassword] = useState("");
  const secret = window.location.hash.slice(1);
  const { user } = session;
  const submit = (event: FormEvent) => {
    event.preventDefault();
    accept.mutate(user ? { secret } : { secret, name: name.trim(), password });
  };
  return (
    <main className={css.page}>
      <div className={css.corner}><ThemeToggle /></div>
      <form className={css.card} onSubmit={submit} aria-labelledby="invitation-title">
        <div className={css.brand}><Logo size={28} /><span>Evenkeel</span></div>
        <h1 id="invitation-title" className={css.title}>You are invited</h1>
        {user ? <p className={css.lead}>Join the project as {user.email}.</p> : (
          <>
            <p className={css.lead}>Choose a password, and you are in. Whoever has an account here <a href="/">signs in</a> first and opens the link again.</p>
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
        <div role="alert" className={css.error}>{secret ? accept.error?.message : "The link is incomplete: copy it whole."}</div>
        <button type="submit" className="btn pri" style={{ justifyContent: "center", height: 34 }} disabled={accept.isPending || !secret}>
          {user ? "Join" : "Make the account"}
        </button>
      </form>
    </main>
  );
}
