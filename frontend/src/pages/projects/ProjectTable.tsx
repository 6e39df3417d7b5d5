import { Link } from "react-router";
import type { Project } from "../../api/types";
import { UsedBar } from "../../components/UsedBar";
import { integer, money } from "../../lib/format";
import { treeOf } from "./projectTree";
import { Name } from "../../components/Name";

/** Figures are of a project with all below it, as its limits count. */
export function ProjectTable({ rows, currency }: { rows: Project[]; currency: string }) {
  return (
    <div className="tw" tabIndex={0}>
      <table className="t cards">
        <thead>
          <tr>
            <th scope="col">Project</th><th scope="col">Your role</th><th scope="col" className="ra">Members</th><th scope="col" className="ra">GPUs allocated</th>
            <th scope="col" className="ra">Running</th><th scope="col" className="ra">Waiting</th><th scope="col" className="ra">Spent this month</th><th scope="col" style={{ width: 150 }}>Of the budget</th>
          </tr>
        </thead>
        <tbody>{treeOf(rows).map(({ project, level }) => <Row key={project.key} project={project} level={level} currency={currency} />)}</tbody>
      </table>
    </div>
  );
}

function Row({ project, level, currency }: { project: Project; level: number; currency: string }) {
  const all = project.with_below;
  const own = all.gpus_allocated === project.gpus_allocated && all.spend_month === project.spend_month ? undefined : `${integer(project.gpus_allocated)} GPUs and ${money(project.spend_month, currency)} without those below it`;
  return (
    <tr data-row title={own}>
      <td className="wide" style={{ fontWeight: 500 }}>
        <span style={{ paddingLeft: 16 * level }}>
          <Link className="link" to={`/projects/${project.key}`}><Name>{project.name}</Name></Link><span className="sub mono">{project.key}</span>
          {level === 0 && project.parent !== null && <span className="sub">in {project.parent}</span>}
        </span>
      </td>
      <td data-l="Your role">{project.role}</td>
      <td className="ra" data-l="Members">{integer(project.members)}</td>
      <td className="ra" data-l="GPUs allocated">{integer(all.gpus_allocated)}{project.gpu_limit !== null && <span className="sub">of {integer(project.gpu_limit)}</span>}</td>
      <td className="ra" data-l="Running">{integer(all.jobs_running)}</td>
      <td className="ra" data-l="Waiting">{integer(all.jobs_queued)}</td>
      <td className="ra whole" data-l="Spent this month">{money(all.spend_month, currency)}{project.budget_month !== null && <span className="sub">of {money(project.budget_month, currency)}</span>}</td>
      <td className="whole" data-l="Of the budget"><Budget project={project} /></td>
    </tr>
  );
}

function Budget({ project }: { project: Project }) {
  if (project.budget_month === null) return <span className="sub" style={{ margin: 0 }}>none</span>;
  const budget = Number(project.budget_month);
  const spent = Number(project.with_below.spend_month);
  const used = budget > 0 ? Math.floor((100 * spent) / budget) : 100;
  return <UsedBar percent={used} bad={used >= 100} />;
}
