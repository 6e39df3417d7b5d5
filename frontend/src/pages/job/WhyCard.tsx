import type { UseQueryResult } from "@tanstack/react-query";
import { Fragment } from "react";
import { Link } from "react-router";
import { useSession } from "../../api/hooks";
import type { Explanation, JobDetail } from "../../api/types";
import { JobRef } from "../../components/JobRef";
import { useNow } from "../../lib/clock";
import { Loadable, Panel, Skeleton } from "../../components/Panel";
import { StateChip } from "../../components/StateChip";
import { startWords } from "../../lib/job/expectedStart";
import { capital, clock, count, integer, moment, number, partOf, variance } from "../../lib/format";
import { hasEnded } from "../../lib/job/jobState";
import css from "./job.module.css";
import { sentenceOf } from "../../lib/isolated";

function title(job: JobDetail): string {
  if (hasEnded(job.state)) return "Why it ended";
  if (job.state === "queued") return "Why it waits";
  return `Why ${partOf(job.allocation?.share_percent, count(job.allocation?.count ?? 0, "GPU"))} now`;
}

/** When it starts, in a sentence, with what that rests on and how old it is. */
function Start({ job, now }: { job: JobDetail; now: Date }) {
  if (!job.expected_start) return null;
  const start = startWords(job.expected_start, now);
  if (!start) return <p className={css.quiet}>{sentenceOf(job.expected_start.reason?.text ?? "")}</p>;
  return <p title={start.at}>It is expected to start <b>{start.range}</b>{start.sentence !== start.range && <>, most likely in <b>{start.likely}</b></>}. <span className={css.quiet}>{capital(start.basis)}.</span></p>;
}

export function WhyCard({ job, query, now }: { job: JobDetail; query: UseQueryResult<Explanation>; now: Date }) {
  const at = hasEnded(job.state) ? job.finished_at : query.data?.at;
  return (
    <Panel title={title(job)} right={at && <span className="sub">{clock(new Date(at))}</span>}>
      <Loadable query={query} what="The explanation" skeleton={<Skeleton height={14} count={4} />}>
        {(why) => (
          <div className={`pb ${css.prose}`}>
            {why.preemption && <Displaced displaced={why.preemption} />}
            <p>{sentenceOf(why.text)}</p>
            <Start job={job} now={now} />
            {why.ahead.length > 0 && <Ahead ahead={why.ahead} />}
            {why.apart > 0 && <p className={css.quiet}>{apart(why.apart)}</p>}
            {why.weighed.length > 0 && <Weighed weighed={why.weighed} own={job.number} />}
            {why.deadline && <p>{sentenceOf(why.deadline)}</p>}
            {why.would_change && <p className={css.quiet}>{sentenceOf(why.would_change)}</p>}
            <p className={`mono ${css.token}`}>{why.code}{why.slurm !== null && ` (Slurm: ${why.slurm})`}{why.round !== null && <>, <Round number={why.round} /></>}</p>
          </div>
        )}
      </Loadable>
    </Panel>
  );
}

/** Administrators may open it. */
function Round({ number }: { number: number }) {
  const admin = useSession().data?.user?.is_admin ?? false;
  const text = `round ${integer(number)}`;
  return admin ? <Link className="link" to={`/lab/rounds/${number}`}>{text}</Link> : <>{text}</>;
}

/** Who took GPUs, at which level, and when they are expected back. The sentence of the decision names the cause. */
function Displaced({ displaced }: { displaced: NonNullable<Explanation["preemption"]> }) {
  const now = useNow();
  const { by, gpus_before, gpus_now, back_at, back_basis } = displaced;
  return (
    <>
      <p>{sentenceOf(displaced.text)}</p>
      <dl>
        <dt>{displaced.kind === "shrunk" ? "Shrunk" : "Preempted"}</dt>
        <dd>{gpus_now} of {gpus_before} GPUs left, since {clock(new Date(displaced.at))}</dd>
        <dt>Level</dt>
        <dd>{sentenceOf(displaced.level)}</dd>
        {by.map((job) => (
          <Fragment key={job.number}>
            <dt>Taken by</dt>
            <dd><JobRef number={job.number} name={job.name} project={job.project} /> ({sentenceOf(job.within)})</dd>
          </Fragment>
        ))}
        <dt>Back</dt>
        <dd>{back_at === null ? "not foreseen" : <span title={back_basis ?? undefined}>about {moment(new Date(back_at), now)}</span>}</dd>
      </dl>
    </>
  );
}

function apart(count: number): string {
  return `${count} before it in the queue ${count === 1 ? "waits" : "wait"} for something else than GPUs that it could have.`;
}

function Ahead({ ahead }: { ahead: Explanation["ahead"] }) {
  return (
    <table className="t flush">
      <thead><tr><th scope="col">Ahead of it</th><th scope="col" className="ra">GPUs</th><th scope="col" className="ra">State</th></tr></thead>
      <tbody>
        {ahead.slice(0, 8).map((job) => (
          <tr key={job.number}>
            <td style={{ maxWidth: 170 }}><JobRef number={job.number} name={job.name} project={job.project} /></td>
            <td className="ra">{partOf(job.share_percent, String(job.gpus))}</td>
            <td className="ra"><StateChip state={job.state} /></td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

function Weighed({ weighed, own }: { weighed: Explanation["weighed"]; own: number }) {
  return (
    <table className="t flush">
      <thead><tr><th scope="col">What was weighed</th><th scope="col" className="ra">Gain, steps/s</th><th scope="col" className="ra">Variance</th></tr></thead>
      <tbody>
        {weighed.slice(0, 8).map((entry) => (
          <tr key={entry.number} style={entry.number === own ? { fontWeight: 600 } : {}}>
            <td style={{ maxWidth: 170 }}><JobRef number={entry.number} name={entry.name} project="another project" link={entry.number !== own} /></td>
            <td className="ra">{entry.gain_steps_per_s === null ? "–" : `${entry.gain_steps_per_s > 0 ? "+" : ""}${number(entry.gain_steps_per_s)}`}</td>
            <td className="ra">{entry.variance === null ? "–" : variance(entry.variance)}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}
