import { useBrowsers, useEndBrowser } from "../../api/hooks";
import { Loadable, Panel, Skeleton } from "../../components/Panel";
import { dateTime, moment, relative } from "../../lib/format";

/** Where one is signed in, with the way to end it: a browser left open elsewhere is signed out from here. */
export function BrowsersPanel() {
  const query = useBrowsers();
  const end = useEndBrowser();
  const now = new Date();
  const others = (query.data ?? []).some((session) => !session.current);
  return (
    <Panel title="Signed in" right={others && <button type="button" className="btn sm" disabled={end.isPending} onClick={() => end.mutate(null)}>Sign out everywhere else</button>}>
      {end.error && <div className="fault" role="alert">{end.error.message}</div>}
      <Loadable query={query} what="The list of sessions" skeleton={<Skeleton height={26} count={2} />}>
        {(list) => (
          <div className="tw" tabIndex={0}>
            <table className="t cards">
              <thead><tr><th scope="col">Browser</th><th scope="col">Address</th><th scope="col" className="ra">Since</th><th scope="col" className="ra">Last seen</th><th scope="col"><span className="vh">Action</span></th></tr></thead>
              <tbody>
                {list.map((session) => (
                  <tr key={session.id}>
                    <td className="wide" style={{ fontWeight: 500 }}>{session.device} {session.current && <span className="chip">this one</span>}</td>
                    <td className="num" data-l="Address">{session.address}</td>
                    <td className="ra" data-l="Since" title={session.created_at ? dateTime(new Date(session.created_at)) : undefined}>{session.created_at ? moment(new Date(session.created_at), now) : "–"}</td>
                    <td className="ra" data-l="Last seen">{session.last_seen_at ? relative(new Date(session.last_seen_at), now) : "–"}</td>
                    <td className="ra">{!session.current && <button type="button" className="btn sm bad" disabled={end.isPending} onClick={() => end.mutate(session.id)}>Sign out</button>}</td>
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
        )}
      </Loadable>
    </Panel>
  );
}
