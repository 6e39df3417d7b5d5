import { Link } from "react-router";
import { rowsOf } from "../../api/pages";
import { useRollouts } from "../../api/rolloutHooks";
import { More } from "../../components/More";
import { Loadable, Panel, Skeleton } from "../../components/Panel";
import { dateTime, moment } from "../../lib/format";
import { PHASE_CHIPS, PHASE_WORDS } from "../../lib/rolloutPhases";
import { Name } from "../../components/Name";
import { sentenceOf } from "../../lib/isolated";

/** Every policy that was tried in the shadow or promoted, newest first. */
export function Rollouts() {
  const query = useRollouts();
  const now = new Date();
  return (
    <Panel title="Rollouts" meta="policies tried in the shadow, and promoted">
      <Loadable query={query} what="The list of rollouts" skeleton={<Skeleton height={30} count={2} />}>
        {(data) => rowsOf(data).length === 0 ? <p className="empty">None yet: begin with a result of a simulation.</p> : (
          <div className="tw" tabIndex={0}>
            <table className="t cards">
              <thead><tr><th scope="col">Policy</th><th scope="col">State</th><th scope="col">Outcome</th><th scope="col">By</th><th scope="col" className="ra">Since</th></tr></thead>
              <tbody>
                {rowsOf(data).map((one) => (
                  <tr key={one.id}>
                    <td className="wide" style={{ fontWeight: 500 }}><Link to={`/lab/rollouts/${one.id}`}><Name>{one.label}</Name></Link></td>
                    <td data-l="State"><span className={PHASE_CHIPS[one.phase]}>{PHASE_WORDS[one.phase]}</span></td>
                    <td className="whole" data-l="Outcome" style={{ whiteSpace: "normal" }}>{sentenceOf(one.outcome) || <span className="sub">under way</span>}</td>
                    <td data-l="By"><Name>{one.created_by ?? "–"}</Name></td>
                    <td data-l="Since" className="ra" title={dateTime(new Date(one.created_at))}>{moment(new Date(one.created_at), now)}</td>
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
        )}
      </Loadable>
      <More query={query} label="Older rollouts" />
    </Panel>
  );
}
