import { Link } from "react-router";
import type { Job } from "../api/types";
import { jobPaint } from "../lib/highlight";

interface Props {
  number: number;
  name: string | null;
  project?: string;
  array?: Job["array"];
  link?: boolean;
}

/** Swatch, number and name, and the place in its array; a job that may not be read is a number with its project. */
export function JobRef({ number, name, project, array, link = true }: Props) {
  const inside = (
    <>
      <i className="sw" style={jobPaint(number)} aria-hidden />
      <span className="num">{number}</span>
      {name === null ? <span className="sub ell" style={{ margin: 0 }}><bdi>{project ?? "another project"}</bdi></span> : <b className="ell" title={name}><bdi>{name}</bdi></b>}
      {array && <span className="sub num" style={{ margin: 0 }}>{array.number}_{array.index}</span>}
    </>
  );
  if (!link || name === null) return <span className="jobref">{inside}</span>;
  return (
    <Link to={`/jobs/${number}`} className="jobref">
      {inside}
    </Link>
  );
}
