import { useFidelity } from "../../api/labHooks";
import { Loadable, Panel, Skeleton } from "../../components/Panel";
import { count, duration, percent } from "../../lib/format";
import { Name } from "../../components/Name";

/** How near the simulator comes to what was recorded, under the policy that really ran. */
export function Fidelity({ id }: { id: string }) {
  const query = useFidelity(id);
  return (
    <Panel title="Simulated against recorded" meta="the same jobs under the policy that really ran">
      <Loadable query={query} what="The comparison" skeleton={<Skeleton height={26} count={4} />}>
        {(found) => !found.available ? <p className="empty">{found.why}</p> : (
          <>
            <div className="tw" tabIndex={0}>
              <table className="t">
                <thead><tr><th scope="col">{found.policy}, {count(found.jobs, "job")}</th><th scope="col" className="ra">Recorded</th><th scope="col" className="ra">Simulated</th><th scope="col" className="ra">Error</th></tr></thead>
                <tbody>
                  {found.rows.map((row) => {
                    const say = (value: number) => (row.key === "utilisation" ? percent(value, 1) : duration(value));
                    return <tr key={row.key}><td><Name>{row.label}</Name></td><td className="ra">{say(row.recorded)}</td><td className="ra">{say(row.simulated)}</td><td className="ra">{row.error > 0 ? "+" : ""}{percent(row.error, 1)}</td></tr>;
                  })}
                </tbody>
              </table>
            </div>
            {found.notes.length > 0 && <ul className="pb sub" style={{ paddingLeft: 30 }}>{found.notes.map((note) => <li key={note}>{note}</li>)}</ul>}
          </>
        )}
      </Loadable>
    </Panel>
  );
}
