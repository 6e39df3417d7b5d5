import { Link, useNavigate } from "react-router";
import { useArray } from "../../api/hooks";
import type { Job, JobArray } from "../../api/types";
import { Emulated, StateChip } from "../../components/StateChip";
import { arrayCounts } from "../../lib/arrays";
import { count, dateTime, integer, moment, percent, range } from "../../lib/format";

const NONE = <span className="sub">–</span>;

interface Props {
  /** The first of its jobs, which all have in common what is shown of it. */
  first: Job;
  place: NonNullable<Job["array"]>;
  listed: JobArray | undefined;
  /** It is so old that no list had it. */
  alone: boolean;
  now: Date;
}

/** A folded array: how many of its jobs are in which state. */
export function ArrayRow({ first, place, listed, alone, now }: Props) {
  const navigate = useNavigate();
  const one = useArray(String(place.number), alone).data;
  const array = listed ?? one;
  const way = `/jobs?array=${place.number}`;
  const { states, ended, size } = arrayCounts(array?.states ?? {});
  const submitted = new Date(first.submitted_at);
  return (
    <tr className="jx" data-row style={{ cursor: "pointer" }} onClick={() => void navigate(way)}>
      <td className="wide">
        <Link className="jobref" to={way} onClick={(event) => event.stopPropagation()}><span className="num">{place.number}</span><b className="ell">{first.name}</b></Link>
        {" "}<span className="chip">array of {count(place.size, "job")}</span>
      </td>
      <td className="wide"><span style={{ display: "inline-flex", flexWrap: "wrap", alignItems: "center", gap: "2px 10px" }}>
        {states.map(([state, jobs]) => <span key={state} style={{ display: "inline-flex", alignItems: "center", gap: 4 }}><b className="num">{integer(jobs)}</b>{" "}<StateChip state={state} /></span>)}
        {first.emulated && <Emulated />}
      </span></td>
      <td data-l="Project">{first.project.name}</td>
      <td data-l="Owner">{first.owner ? first.owner.name || first.owner.email : <span className="sub">no longer here</span>}</td>
      <td className="ra" data-l="Progress">{array ? <span title={`${integer(ended)} of ${count(size, "job")} have ended`}>{percent(size > 0 ? ended / size : 0)}<span className="sub">ended</span></span> : NONE}</td>
      <td data-l="GPUs"><span className="sub" style={{ margin: 0 }}>wants {range(first.gpus.min, first.gpus.max)} each</span></td>
      <td className="ra" data-l="Submitted" title={dateTime(submitted)}>{moment(submitted, now)}</td>
      <td className="ra" data-l="Ended">{array?.ended ? <span className="sub">all</span> : NONE}</td>
      <td className="ra" data-l="Cost"><span className="sub" title="Its jobs say what each cost">–</span></td>
    </tr>
  );
}
