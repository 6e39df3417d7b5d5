import type { RoundNode } from "../../api/types";
import { jobColour } from "../../lib/colour";
import { count } from "../../lib/format";
import css from "./lab.module.css";
import { Name } from "../../components/Name";

interface Props {
  nodes: RoundNode[];
  labels: [string, string];
  /** In the place of what they have before. */
  before?: RoundNode[];
}

/** GPUs by node, twice: who is on each by one plan, and by the other. */
export function Board({ nodes, labels, before }: Props) {
  return (
    <div className="tw" tabIndex={0}>
      <table className="t">
        <thead><tr><th scope="col">Node</th>{labels.map((label) => <th key={label} scope="col">{label}</th>)}</tr></thead>
        <tbody>
          {nodes.map((node, i) => (
            <tr key={node.name}>
              <td><Name>{node.name}</Name> <span className="sub">{node.type}{node.lost ? ", lost" : node.schedulable ? "" : ", drained"}</span></td>
              <td><Cells gpus={before ? (before[i]?.after ?? []) : node.before} /></td>
              <td><Cells gpus={node.after} /></td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Cells({ gpus }: { gpus: number[][] }) {
  const held = gpus.filter((jobs) => jobs.length > 0).length;
  const jobs = [...new Set(gpus.flat())];
  const said = `${held} of ${count(gpus.length, "GPU")} allocated${jobs.length > 0 ? ` by ${jobs.slice(0, 8).map((job) => `#${job}`).join(", ")}${jobs.length > 8 ? " and others" : ""}` : ""}`;
  return (
    <span className={css.cells} role="img" aria-label={said} title={said}>
      {gpus.map((jobs, i) => <i key={i} style={{ background: jobs[0] === undefined ? "var(--cell-free)" : jobColour(jobs[0]) }} />)}
    </span>
  );
}
