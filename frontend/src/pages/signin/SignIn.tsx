import { useState, type FormEvent } from "react";
import { useSignIn } from "../../api/hooks";
import type { Session } from "../../api/types";
import { Logo } from "../../components/icons";
import { count } from "../../lib/format";
import { ThemeToggle } from "../../shell/ThemeToggle";
import { TrustChip } from "../../shell/TrustChip";
import css from "../../theme/signin.module.css";
import { Name } from "../../components/Name";

/** Why the directory's sign-in came back without one. */
const REFUSED: Record<string, string> = {
  directory: "Single sign-on did not work. Try again, or sign in with a password.",
  unverified: "The directory has not confirmed your email address, so you cannot sign in with it.",
  inactive: "This account is deactivated. Ask an administrator of the cluster.",
};

export function SignIn({ session }: { session: Session }) {
  const signIn = useSignIn();
  const [email, setEmail] = useState("");
  const [password, setPassword] = useState("");
  const submit = (event: FormEvent) => {
    event.preventDefault();
    signIn.mutate({ email: email.trim(), password });
  };
  const { cluster, single_sign_on: sso } = session;
  const refused = REFUSED[new URLSearchParams(window.location.search).get("error") ?? ""];
  return (
    <main className={css.page}>
      <div className={css.corner}><ThemeToggle /></div>
      <form className={css.card} onSubmit={submit} aria-labelledby="signin-title">
        <div className={css.brand}><Logo size={28} /><span>Evenkeel</span></div>
        <h1 id="signin-title" className={css.title}>Sign in</h1>
        <p className={css.lead}><Name>{cluster.name}</Name>: {count(cluster.gpus, "GPU")} on {count(cluster.nodes, "node")}, shared evenly.</p>
        <div className="f">
          <label htmlFor="email">Email</label>
          <input id="email" name="email" type="email" className="in" autoComplete="username" required autoFocus value={email} onChange={(event) => setEmail(event.target.value)} />
        </div>
        <div className="f">
          <label htmlFor="password">Password</label>
          <input id="password" name="password" type="password" className="in" autoComplete="current-password" required value={password} onChange={(event) => setPassword(event.target.value)} />
        </div>
        <div role="alert" className={css.error}>{signIn.error?.message ?? refused}</div>
        <button type="submit" className="btn pri" style={{ justifyContent: "center", height: 34 }} disabled={signIn.isPending}>
          {signIn.isPending ? "Signing in" : "Sign in"}
        </button>
        {sso && <a href={sso.url} className="btn" style={{ justifyContent: "center", minHeight: 34, height: "auto", whiteSpace: "normal" }}><span>Sign in with <Name>{sso.name}</Name></span></a>}
        <p className={css.hint}>No account yet, or the password is lost? An administrator of this cluster makes accounts and sets passwords; its own is set on the machine of the portal by manage.py changepassword.</p>
      </form>
      <footer className={css.foot}>
        Evenkeel {session.version}
        {session.emulated && <span className="chip o">emulated accelerators</span>}
        {session.single_trust_mode && <TrustChip />}
      </footer>
    </main>
  );
}
