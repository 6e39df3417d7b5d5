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
          <li key={one.name} className={leadsHere(one) || one.may_lead_here ? css.noLink : undefined}>
            {leadsHere(one) || one.may_lead_here ? <NoLink link={one} /> : (
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

function NoLink({ link }: { link: JobDetail["links"][number] }) {
  const warning = leadsHere(link)
    ? "It leads to this portal's own machine. Opened in the browser that is signed in here, it would give your session to the program that listens there. Reach it by a tunnel, in a private window."
    : "This portal has no HTTPS name of its own, and jobs run on its machine: a page could send your browser, with your session, on to a program that listens there. Open the address in a private window. With HTTPS (docs/operations.md) it is a link.";
  return (
    <>
      <span><Name>{link.name}</Name></span>
      <span className="chip warn" title={warning}>{leadsHere(link) ? "not a link: leads to the portal's machine" : "not a link: open it in a private window"}</span>
      <code>{link.url}</code>
    </>
  );
}

function hostOf(url: string): string {
  return URL.canParse(url) ? new URL(url).host : url;
}
