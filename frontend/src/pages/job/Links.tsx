import type { JobDetail } from "../../api/types";
import { Panel } from "../../components/Panel";
import { Name } from "../../components/Name";
import css from "./job.module.css";

/** What the program said is to be seen elsewhere. Its word is not ours: where it leads stands beside it. */
export function Links({ job }: { job: JobDetail }) {
  if (job.links.length === 0) return null;
  return (
    <Panel title="Links" meta="from its program">
      <ul className={`pb ${css.links}`}>
        {job.links.map((one) => (
          <li key={one.name} className={leadsHere(one) ? css.noLink : undefined}>
            {leadsHere(one) ? <NoLink name={one.name} url={one.url} /> : (
              <>
                <a className="link" href={one.url} target="_blank" rel="noopener noreferrer"><Name>{one.name}</Name></a>
                <span className={`sub ell ${css.host}`} title={one.url}>{hostOf(one.url)}</span>
              </>
            )}
          </li>
        ))}
      </ul>
    </Panel>
  );
}

/** A browser sends this host's cookies to all its ports: behind such a link a job would get the session. */
function leadsHere({ url, leads_here }: JobDetail["links"][number]): boolean {
  return leads_here || !URL.canParse(url) || new URL(url).hostname === window.location.hostname;
}

function NoLink({ name, url }: { name: string; url: string }) {
  return (
    <>
      <span><Name>{name}</Name></span>
      <span className="chip warn" title="It leads to this portal's own machine. Opened in the browser that is signed in here, it would give your session to the program that listens there. Reach it by a tunnel, in a private window.">not a link: leads to the portal's machine</span>
      <code>{url}</code>
    </>
  );
}

function hostOf(url: string): string {
  return URL.canParse(url) ? new URL(url).host : url;
}
