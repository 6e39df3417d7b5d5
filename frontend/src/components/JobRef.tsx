import { Link } from "react-router";
import { jobPaint } from "../lib/highlight";

/** Swatch, number and name; a job that may not be read is a number with its project. */
export function JobRef({ number, name, project, link = true }: { number: number; name: string | null; project?: string; link?: boolean }) {
  const inside = (
    <>
      <i className="sw" style={jobPaint(number)} aria-hidden />
      <span className="num">{number}</span>
      {name === null ? <span className="sub ell" style={{ margin: 0 }}>{project ?? "another project"}</span> : <b className="ell">{name}</b>}
    </>
  );
  if (!link || name === null) return <span className="jobref">{inside}</span>;
  return (
    <Link to={`/jobs/${number}`} className="jobref">
      {inside}
    </Link>
  );
}
