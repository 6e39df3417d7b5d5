import { Link, useParams } from "react-router";
import { url } from "../../api/client";
import { useRound } from "../../api/roundHooks";
import type { RoundDetail, RoundJob } from "../../api/types";
import { Icon } from "../../components/icons";
import { JobRef } from "../../components/JobRef";
import { Loadable, Panel, SentenceWaits, Skeleton } from "../../components/Panel";
import { StateChip } from "../../components/StateChip";
import { count, dateTime, integer, number, preciseDuration, range } from "../../lib/format";
import { figureName, gangText, movesWords } from "./rounds";
import { show } from "../../lib/schemaForm";
import { TopBar } from "../../shell/TopBar";
import { Board } from "./Board";
import { ReplayPanel } from "./ReplayPanel";
import css from "./lab.module.css";
import { sentenceOf } from "../../lib/isolated";

export default function RoundPage() {
  const { number: round = "" } = useParams();
  const query = useRound(round);
  const name = `Round ${round}`;
  return (
    <>
      <TopBar title={name} crumb={<><Link to="/lab">Policy lab</Link><i>/</i><Link to="/lab/rounds">Rounds</Link><i>/</i>{round}</>} />
      <div className="page">
        {!query.data && !query.error && <SentenceWaits />}
        <Loadable query={query} what="The round" skeleton={<Skeleton height={40} count={4} />}>
          {(found) => <Known key={found.round} round={found} />}
        </Loadable>
      </div>
    </>
  );
}

function Known({ round }: { round: RoundDetail }) {
  const { counts } = round;
  return (
    <>
      <div style={{ display: "flex", gap: 12, alignItems: "flex-start", flexWrap: "wrap" }}>
        <h1 className="say grow">
          <b>Round {integer(round.round)}: {movesWords(round.moves)}</b>, by <span className="mono">{round.policy}</span> on {dateTime(new Date(round.at))}. It saw {count(counts.jobs, "job")}, of which {counts.waiting} waited, and {counts.gpus_allocated} of {count(counts.gpus, "GPU")} allocated.
        </h1>
        <div className={css.line} style={{ padding: 0 }}>
          {round.before !== null && <Link className="btn" to={`/lab/rounds/${round.before}`}>Before</Link>}
          {round.after !== null && <Link className="btn" to={`/lab/rounds/${round.after}`}>After</Link>}
          <a className="btn" href={url(`rounds/${round.round}/case`)} download title="A file for manage.py solve"><Icon name="download" size={14} />Solve case</a>
        </div>
      </div>
      {round.rejected !== null && <div className="fault" role="status" style={{ margin: 0 }}>{sentenceOf(round.rejected)}</div>}
      <Panel title="GPUs" meta="before the round and after it; a colour per job">
        <Board nodes={round.nodes} labels={["Before", "After"]} />
        {round.nodes.length < counts.nodes && <p className="pb sub">The first {round.nodes.length} of {count(counts.nodes, "node")}.</p>}
      </Panel>
      <Panel title="Jobs" meta={round.jobs.length < round.jobs_total ? `${round.jobs.length} of ${integer(round.jobs_total)}: those that it moved first` : "those that it moved first"}>
        {round.jobs.length === 0 ? <p className="empty">There was no job.</p> : <Jobs jobs={round.jobs} />}
      </Panel>
      <ReplayPanel round={round} />
      <div className={css.charts}>
        <Panel title="Figures" meta={`planned in ${preciseDuration(round.seconds)}`}><Pairs entries={Object.entries(round.figures).map(([key, value]) => [figureName(key), number(value)])} /></Panel>
        <Panel title="Parameters" meta={round.policy}><Pairs entries={Object.entries(round.parameters).map(([key, value]) => [figureName(key), show(value) || "none"])} /></Panel>
      </div>
    </>
  );
}

function Pairs({ entries }: { entries: [string, string][] }) {
  if (entries.length === 0) return <p className="empty">None.</p>;
  return (
    <div className="tw" tabIndex={0}>
      <table className="t"><tbody>{entries.map(([key, value]) => <tr key={key}><td>{key}</td><td className="ra">{value}</td></tr>)}</tbody></table>
    </div>
  );
}

function Jobs({ jobs }: { jobs: RoundJob[] }) {
  return (
    <div className="tw" tabIndex={0} style={{ maxHeight: 520 }}>
      <table className="t cards">
        <thead><tr><th scope="col">Job</th><th scope="col">State</th><th scope="col" className="ra">Asks for</th><th scope="col" className="ra">Steps left</th><th scope="col" className="ra">Before</th><th scope="col" className="ra">After</th><th scope="col">Why</th></tr></thead>
        <tbody>
          {jobs.map((job) => (
            <tr key={job.job.number} style={job.move ? { fontWeight: 500 } : {}}>
              <td className="wide"><JobRef number={job.job.number} name={job.job.name} project={job.job.project} />{job.limits.length > 0 && <span className="sub">{sentenceOf(job.limits.join("; "))}</span>}</td>
              <td data-l="State"><StateChip state={job.state} /></td>
              <td data-l="Asks for" className="ra">{range(job.min_gpus, job.max_gpus)}{job.types.length > 0 && ` ${job.types.join(", ")}`}</td>
              <td data-l="Steps left" className="ra">{integer(Math.round(job.remaining_steps))}</td>
              <td data-l="Before" className="ra">{gangText(job.before)}</td>
              <td data-l="After" className="ra">{gangText(job.after)}</td>
              <td data-l="Why" className={`wide ${css.why}`} style={{ whiteSpace: "normal", fontWeight: 400 }} title={job.reason?.code}>{job.reason ? sentenceOf(job.reason.text) : "–"}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
