import { useSearchParams } from "react-router";
import { useSimulationCharts, useSimulationTable } from "../../api/labHooks";
import type { Simulation, SimulationTable, SimulationTrial } from "../../api/types";
import { Loadable, Panel, Skeleton } from "../../components/Panel";
import { Choice } from "../../components/TextField";
import { figure, standing } from "./lab";
import { CurvesChart, Legend, type Chosen } from "./CurvesChart";
import { Differences } from "./Differences";
import { Fidelity } from "./Fidelity";
import { Gantts } from "./Gantts";
import { ToForce } from "./ToForce";
import css from "./lab.module.css";
import { Name } from "../../components/Name";
import { isolated } from "../../lib/isolated";

/** What is compared lives in the address, so that a link shows the same. */
function useChosen(trials: SimulationTrial[]): Chosen & { set: (key: "base" | "other", trial: string) => void } {
  const [params, setParams] = useSearchParams();
  const known = (key: string) => trials.find((trial) => trial.id === params.get(key))?.id;
  const base = known("base") ?? trials[0]?.id ?? "";
  const other = known("other") ?? trials.find((trial) => trial.id !== base)?.id ?? "";
  return { base, other, set: (key, trial) => setParams((old) => { old.set(key, trial); return old; }, { replace: true }) };
}

const nameOf = (trial: SimulationTrial) => (trial.role === "as_it_was" ? `${isolated(trial.label)}, as it was` : trial.label);

export function Results({ simulation, trials, admin }: { simulation: Simulation; trials: SimulationTrial[]; admin: boolean }) {
  const chosen = useChosen(trials);
  const table = useSimulationTable(simulation.id);
  const options = trials.map((trial): [string, string] => [trial.id, nameOf(trial)]);
  const named = (id: string) => options.find(([key]) => key === id)?.[1] ?? "";
  return (
    <>
      <Panel title="Results" meta="▲ best, ▼ worst of the candidates; with several seeds the mean and its 95 % interval">
        <Loadable query={table} what="The table" skeleton={<Skeleton height={26} count={4} />}>
          {(found) => <Figures table={found} />}
        </Loadable>
      </Panel>
      {admin && <ToForce trials={trials.filter((trial) => trial.role === "candidate")} />}
      {trials.length > 1 && (
        <div className={css.line} style={{ padding: 0 }}>
          <Choice label="Base" value={chosen.base} options={options} onChange={(trial) => chosen.set("base", trial)} />
          <Choice label="Compared with it" value={chosen.other} options={options} onChange={(trial) => chosen.set("other", trial)} />
        </div>
      )}
      <Charts id={simulation.id} chosen={chosen} legend={<Legend base={named(chosen.base)} other={named(chosen.other)} rest={trials.length - 2} />} />
      <Differences id={simulation.id} chosen={chosen} base={named(chosen.base)} other={named(chosen.other)} />
      <Gantts id={simulation.id} base={chosen.base} other={chosen.other} />
      {simulation.spec.workload.kind === "history" && <Fidelity id={simulation.id} />}
    </>
  );
}

function Figures({ table }: { table: SimulationTable }) {
  return (
    <div className="tw" tabIndex={0}>
      <table className="t">
        <thead><tr><th scope="col">Policy</th>{table.columns.map((column) => <th key={column.key} scope="col" className="ra">{column.label}</th>)}</tr></thead>
        <tbody>
          {table.rows.map((row) => (
            <tr key={`${row.role}/${row.label}`}>
              <th scope="row" style={{ textAlign: "left", fontWeight: 500 }}><Name>{row.label}</Name>{row.role === "as_it_was" && <span className="chip" style={{ marginLeft: 6 }}>as it was</span>}</th>
              {table.columns.map((column) => {
                const value = row.values[column.key];
                const place = standing(row, column);
                const unit = column.key === "utilisation" ? "share" : column.unit;
                return (
                  <td key={column.key} className={place === "best" ? `ra ${css.cell} ${css.best}` : `ra ${css.cell}`}>
                    {place === "best" && <><span aria-hidden>▲ </span><span className="vh">best: </span></>}
                    {place === "worst" && <><span aria-hidden>▼ </span><span className="vh">worst: </span></>}
                    {figure(value?.mean ?? null, unit)}
                    {value && value.low !== null && value.high !== null && <span className={css.mark}>{figure(value.low, unit)} to {figure(value.high, unit)}</span>}
                  </td>
                );
              })}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Charts({ id, chosen, legend }: { id: string; chosen: Chosen; legend: React.ReactNode }) {
  const query = useSimulationCharts(id);
  return (
    <div className={css.charts}>
      {([
        ["Completion times", "share of jobs that were done within", "jct_cdf", "seconds", "share"],
        ["Wait", "of jobs by their time of arrival", "wait_over_time", "seconds", "seconds"],
        ["Utilisation", "share of the GPUs that train, over time", "utilisation_over_time", "seconds", "share"],
        ["Utilisation, how often", "share of the time at or below", "utilisation_cdf", "share", "share"],
      ] as const).map(([title, meta, key, x, y]) => (
        <Panel key={key} title={title} meta={meta}>
          <Loadable query={query} what="The chart" skeleton={<Skeleton height={190} />}>
            {(charts) => <>{legend}<CurvesChart curves={charts[key]} chosen={chosen} label={`${title}: ${meta}`} x={x} y={y} /></>}
          </Loadable>
        </Panel>
      ))}
      <Panel title="Slowdown by project" meta="mean of its jobs">
        <Loadable query={query} what="The table" skeleton={<Skeleton height={26} count={3} />}>
          {({ slowdown_by_project: all }) => {
            const shown = [chosen.base, chosen.other].map((trial) => all.find((one) => one.trial === trial)).filter((one) => one !== undefined);
            const projects = [...new Set(shown.flatMap((one) => one.projects.map((entry) => entry.project)))].slice(0, 50);
            return (
              <div className="tw" tabIndex={0}>
                <table className="t">
                  <thead><tr><th scope="col">Project</th>{shown.map((one) => <th key={one.trial} scope="col" className="ra"><Name>{one.label}</Name></th>)}</tr></thead>
                  <tbody>
                    {projects.map((project) => (
                      <tr key={project}><td>{project}</td>{shown.map((one) => <td key={one.trial} className="ra">{figure(one.projects.find((entry) => entry.project === project)?.mean ?? null, "")}</td>)}</tr>
                    ))}
                  </tbody>
                </table>
              </div>
            );
          }}
        </Loadable>
      </Panel>
    </div>
  );
}
