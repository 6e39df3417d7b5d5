import { Link } from "react-router";
import type { SlowedJob } from "../../api/types";
import { JobRef } from "../../components/JobRef";
import { Emulated, StateChip } from "../../components/StateChip";
import { relative, times } from "./fairness";
import { duration, integer } from "../../lib/format";
import { Name } from "../../components/Name";
import { sentenceOf } from "../../lib/isolated";

export function WorstTable({ rows, waiting }: { rows: SlowedJob[]; waiting: boolean }) {
  if (rows.length === 0) return <p className="empty">{waiting ? "No job of your projects waits for GPUs." : "Of no job of your projects it is known how fast it is beside being alone."} <Link to="/submit">Submit a job</Link></p>;
  return (
    <div className="tw" tabIndex={0} role="region" aria-label={waiting ? "Jobs that wait longest" : "Jobs that are worst off"}>
      <table className="t cards">
        <thead>
          <tr>
            <th scope="col">Job</th><th scope="col">Project</th>{waiting && <th scope="col">State</th>}
            {!waiting && <><th scope="col" className="ra">Relative throughput</th><th scope="col" className="ra">Slowdown</th><th scope="col" className="ra">GPUs</th></>}
            <th scope="col" className="ra">Waited</th><th scope="col" style={{ width: "38%" }}>Why</th>
          </tr>
        </thead>
        <tbody>
          {rows.map((job) => (
            <tr key={job.number} data-row>
              <td className="wide"><JobRef number={job.number} name={job.name} array={job.array} />{job.emulated && <Emulated />}</td>
              <td data-l="Project" className="whole"><Name>{job.project.name}</Name></td>
              {waiting && <td data-l="State"><StateChip state={job.state} /></td>}
              {!waiting && (
                <>
                  <td className="ra" data-l="Relative throughput"><b>{job.relative_throughput === null ? "–" : relative(job.relative_throughput)}</b></td>
                  <td className="ra" data-l="Slowdown">{job.slowdown === null ? "–" : times(job.slowdown)}</td>
                  <td className="ra" data-l="GPUs">{integer(job.gpus)}</td>
                </>
              )}
              <td className="ra" data-l="Waited">{duration(job.waited_s)}</td>
              <td className="wide sub" style={{ whiteSpace: "normal" }} title={job.reason.code}>{sentenceOf(job.reason.text)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
