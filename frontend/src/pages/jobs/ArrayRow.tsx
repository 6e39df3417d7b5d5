import type { ReactNode } from "react";
import { Link, useNavigate } from "react-router";
import { useArray } from "../../api/hooks";
import type { Job, JobArray, JobColumn } from "../../api/types";
import { Emulated, StateChip } from "../../components/StateChip";
import { count, integer, partOf, percent, range } from "../../lib/format";
import { JOB_COLUMNS } from "../../lib/job/jobColumns";
import { JOB_STATES, STATE_ORDER, type JobState } from "../../lib/job/jobState";
import { JOB_CELLS, NONE } from "./cells";
import type { RowPlace } from "./JobRow";
import css from "./jobs.module.css";

interface Props extends RowPlace {
  /** The first of its jobs, which all have in common what is shown of it. */
  first: Job;
  place: NonNullable<Job["array"]>;
  listed: JobArray | undefined;
  /** It is so old that no list had it. */
  alone: boolean;
  columns: JobColumn[];
  now: Date;
}

/** States that some of its jobs are in, in the order of states, and how many have ended. */
export function arrayCounts(found: JobArray["states"]): { states: [JobState, number][]; ended: number; size: number } {
  const states = STATE_ORDER.map((state): [JobState, number] => [state, found[state] ?? 0]).filter(([, jobs]) => jobs > 0);
  const sum = (rows: [JobState, number][]) => rows.reduce((total, [, jobs]) => total + jobs, 0);
  return { states, ended: sum(states.filter(([state]) => JOB_STATES[state].ended)), size: sum(states) };
}

/** What its jobs have in common. */
const SHARED = new Set<JobColumn>(["project", "owner", "program", "partition", "level", "priority", "labels", "submitted"]);

/** A folded array: how many of its jobs are in which state. */
export function ArrayRow({ first, place, listed, alone, columns, now, index, measure }: Props) {
  const navigate = useNavigate();
  const one = useArray(String(place.number), alone).data;
  const array = listed ?? one;
  const way = `/jobs?array=${place.number}`;
  return (
    <tr ref={measure} data-index={index} aria-rowindex={index + 2} className="jx" data-row style={{ cursor: "pointer" }} onClick={() => void navigate(way)}>
      <td className="wide">
        <span className={css.job}>
          <i className={css.none} title="Open the array to select its jobs" />
          <Link className="jobref" to={way} onClick={(event) => event.stopPropagation()}><span className="num">{place.number}</span><b className="ell" title={first.name}><bdi>{first.name}</bdi></b></Link>
          <span className="chip">array of {count(place.size, "job")}</span>
        </span>
      </td>
      {columns.map((column) => {
        const { label, right } = JOB_COLUMNS[column];
        const shown = SHARED.has(column) ? JOB_CELLS[column](first, now) : ofArray(column, first, array);
        return column === "state" ? <td key={column} className="wide" style={{ whiteSpace: "normal" }}>{shown}</td> : <td key={column} className={right ? "ra" : undefined} data-l={label}>{shown}</td>;
      })}
    </tr>
  );
}

function ofArray(column: JobColumn, first: Job, array: JobArray | undefined): ReactNode {
  const { states, ended, size } = arrayCounts(array?.states ?? {});
  switch (column) {
    case "state":
      return (
        <span style={{ display: "inline-flex", flexWrap: "wrap", alignItems: "center", gap: "2px 10px" }}>
          {states.map(([state, jobs]) => <span key={state} style={{ display: "inline-flex", alignItems: "center", gap: 4 }}><b className="num">{integer(jobs)}</b>{" "}<StateChip state={state} /></span>)}
          {first.emulated && <Emulated />}
        </span>
      );
    case "progress":
      return array ? <span title={`${integer(ended)} of ${count(size, "job")} have ended`}>{percent(size > 0 ? ended / size : 0)}<span className="sub">ended</span></span> : NONE;
    case "gpus":
      return <span className="sub" style={{ margin: 0 }}>wants {partOf(first.gpus.share_percent, range(first.gpus.min, first.gpus.max))} each</span>;
    case "ended":
      return array?.ended ? <span className="sub" style={{ margin: 0 }}>all</span> : NONE;
    default:
      return <span title="Its jobs say it each">{NONE}</span>;
  }
}
