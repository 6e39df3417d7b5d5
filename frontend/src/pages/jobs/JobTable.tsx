import { useWindowVirtualizer } from "@tanstack/react-virtual";
import { useEffect, useLayoutEffect, useRef, useState, type CSSProperties } from "react";
import type { Job, JobArray, JobColumn } from "../../api/types";
import { JOB_COLUMNS, JOB_WIDTH } from "../../lib/job/jobColumns";
import { ArrayRow } from "./ArrayRow";
import { JobRow } from "./JobRow";
import type { Selection } from "./useSelection";
import css from "./jobs.module.css";

const ROW_PX = 35;
/** Rows drawn beyond what is seen, so that J and K find the next one. */
const BEYOND = 12;
/** So many rows before the end the next page is read. */
const AHEAD = 30;
/** Where rows are cards (app.css). */
const NARROW_PX = 700;

interface Props {
  jobs: Job[];
  /** Rows of arrays stand for all of their jobs. */
  folded: boolean;
  arrays: JobArray[] | undefined;
  columns: JobColumn[];
  now: Date;
  selection: Selection;
  /** Whether there are rows that are not read yet; `readMore` reads some of them. */
  more: boolean;
  readMore: () => void;
}

/** Where the rows begin, from the top of the page: what stands above them comes and goes. */
function useTop() {
  const body = useRef<HTMLTableSectionElement>(null);
  const [top, setTop] = useState(0);
  useLayoutEffect(() => {
    const at = body.current ? Math.round(body.current.getBoundingClientRect().top + window.scrollY) : 0;
    if (Math.abs(at - top) > 1) setTop(at);
  });
  return { body, top };
}

/** The list; of its rows only those in sight are drawn, however many are loaded. */
export function JobTable({ jobs, folded, arrays, columns, now, selection, more, readMore }: Props) {
  const { body, top } = useTop();
  const narrow = window.innerWidth <= NARROW_PX;
  const rows = useWindowVirtualizer({
    count: jobs.length, overscan: BEYOND, scrollMargin: top,
    estimateSize: () => (narrow ? 44 + 12 * columns.length : ROW_PX),
    getItemKey: (index) => jobs[index]?.id ?? index,
  });
  const shown = rows.getVirtualItems();
  const [first, last] = [shown[0], shown.at(-1)];
  const nearEnd = (last?.index ?? 0) >= jobs.length - AHEAD;
  useEffect(() => {
    if (more && nearEnd) readMore();
  }, [more, nearEnd, jobs.length, readMore]);
  const least = columns.reduce((sum, column) => sum + JOB_COLUMNS[column].width, JOB_WIDTH);
  return (
    <div className="tw">
      <table className={`t cards ${css.table}`} style={{ "--least": `${least}px` } as CSSProperties} aria-rowcount={more ? -1 : jobs.length + 1}>
        <colgroup><col />{columns.map((column) => <col key={column} style={{ width: JOB_COLUMNS[column].width }} />)}</colgroup>
        <Head columns={columns} selection={selection} />
        <tbody ref={body}>
          {first && first.start > top && <Gap height={first.start - top} />}
          {shown.map(({ index }) => {
            const job = jobs[index];
            if (!job) return null;
            const place = { index, measure: rows.measureElement };
            if (!folded || !job.array) return <JobRow key={job.id} job={job} columns={columns} now={now} selected={selection.numbers.has(job.number)} onSelect={selection.toggle} {...place} />;
            const { number } = job.array;
            const listed = arrays?.find((one) => one.number === number);
            return <ArrayRow key={job.id} first={job} place={job.array} listed={listed} alone={arrays !== undefined && !listed} columns={columns} now={now} {...place} />;
          })}
          {last && <Gap height={rows.getTotalSize() - (last.end - top)} />}
        </tbody>
      </table>
    </div>
  );
}

/** Stands for the rows that are not drawn. */
function Gap({ height }: { height: number }) {
  return height > 0 ? <tr aria-hidden className={css.gap} style={{ height }}><td /></tr> : null;
}

function Head({ columns, selection }: { columns: JobColumn[]; selection: Selection }) {
  const some = selection.jobs.length > 0;
  return (
    <thead>
      <tr>
        <th scope="col"><span className={css.job}><input type="checkbox" checked={some} aria-label={some ? "Select none" : "Select all shown"} onChange={some ? selection.clear : selection.all} />Job</span></th>
        {columns.map((column) => <th key={column} scope="col" className={JOB_COLUMNS[column].right ? "ra" : undefined}>{JOB_COLUMNS[column].label}</th>)}
      </tr>
    </thead>
  );
}
