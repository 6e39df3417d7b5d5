import { memo, type Ref } from "react";
import { useNavigate } from "react-router";
import type { Job, JobColumn } from "../../api/types";
import { JobRef } from "../../components/JobRef";
import { jobMark, jobPaint } from "../../lib/highlight";
import { JOB_COLUMNS } from "../../lib/job/jobColumns";
import { JOB_CELLS } from "./cells";
import css from "./jobs.module.css";

export interface RowPlace {
  /** Among all that are loaded. */
  index: number;
  measure: Ref<HTMLTableRowElement>;
}

interface Props extends RowPlace {
  job: Job;
  columns: JobColumn[];
  now: Date;
  selected: boolean;
  onSelect: (number: number, through: boolean) => void;
}

export const JobRow = memo(function JobRow({ job, columns, now, selected, onSelect, index, measure }: Props) {
  const navigate = useNavigate();
  return (
    <tr
      ref={measure} data-index={index} aria-rowindex={index + 2} data-row data-number={job.number} className={selected ? `jx ${css.on}` : "jx"} style={{ ...jobPaint(job.number), cursor: "pointer" }}
      onClick={() => void navigate(`/jobs/${job.number}`)} {...jobMark(job.number)}
    >
      <td className="wide">
        <span className={css.job}>
          <input type="checkbox" checked={selected} aria-label={`Select job ${job.number}`} onClick={(event) => { event.stopPropagation(); onSelect(job.number, event.shiftKey); }} onChange={() => undefined} />
          <JobRef number={job.number} name={job.name} array={job.array} />
        </span>
      </td>
      {columns.map((column) => {
        const { label, right } = JOB_COLUMNS[column];
        return <td key={column} className={right ? "ra" : undefined} data-l={column === "state" ? undefined : label}>{JOB_CELLS[column](job, now)}</td>;
      })}
    </tr>
  );
});
