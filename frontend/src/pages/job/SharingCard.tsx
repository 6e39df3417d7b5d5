import type { JobDetail } from "../../api/types";
import { JobRef } from "../../components/JobRef";
import { Panel } from "../../components/Panel";
import { count, gangWords, gibibytes, number, percent, withUnit } from "../../lib/format";
import { JOB_STATES } from "../../lib/job/jobState";
import { useLiveJobs } from "../../lib/live/liveContext";
import css from "./job.module.css";

type Sharing = NonNullable<JobDetail["sharing"]>;

/** What an expected slowdown rests on. */
const SOURCES: Record<Sharing["expected_source"], string> = {
  pair: "as measured beside such a neighbour",
  part: "as measured on such a part",
  share: "as planned by its share",
};

/** Of a job with a part of a GPU: how much it has, who has the rest, and what that costs it in speed. */
export function SharingCard({ job }: { job: JobDetail }) {
  const { sharing, allocation } = job;
  if (!sharing) return null;
  const { share_percent, memory_mib, whole_steps_per_s: whole } = sharing;
  const alone = `How much slower it is than alone on a whole GPU, ${SOURCES[sharing.expected_source]}${whole === null ? "" : `: there it would make ${withUnit(number(whole), "steps/s")}`}.`;
  return (
    <Panel title="Shares its GPU" right={<span className="sub">{allocation && gangWords(allocation)}</span>}>
      <div className="pb">
        <dl>
          <dt>Share</dt>
          <dd>{percent(share_percent / 100)} of one GPU</dd>
          <dt>GPU memory</dt>
          <dd>{memory_mib === null ? "its share of the GPU's" : gibibytes(memory_mib)}</dd>
        </dl>
        {allocation && <Beside neighbours={sharing.neighbours} />}
        <dl>
          <Slowdown label="Expected slowdown" value={sharing.expected_slowdown} unknown="not known" says={alone} />
          <Slowdown label="Measured slowdown" value={sharing.measured_slowdown} unknown="not measured yet" says="The same, by the steps that it makes now." />
        </dl>
      </div>
    </Panel>
  );
}

function Slowdown({ label, value, unknown, says }: { label: string; value: number | null; unknown: string; says: string }) {
  return (
    <>
      <dt>{label}</dt>
      <dd>{value === null ? unknown : <b>{withUnit(number(value), "×")}</b>}</dd>
      <dd className={css.says}>{says}</dd>
    </>
  );
}

function Beside({ neighbours }: { neighbours: Sharing["neighbours"] }) {
  const jobs = useLiveJobs();
  if (neighbours.length === 0) return <p className={`sub ${css.mates}`}>No other job is on this GPU now.</p>;
  return (
    <div className={css.mates}>
      <p className="sub">Also on this GPU:</p>
      <ul className={css.links}>
        {neighbours.map((one) => {
          const name = jobs.get(one.number)?.full?.name ?? null;
          const effect = one.slowdown === null ? "" : `${withUnit(number(one.slowdown), "×")} slower beside such a job, by ${count(one.samples, "report")}`;
          const words = [name === null ? "" : one.project, percent(one.share_percent / 100), JOB_STATES[one.state].word.toLowerCase()];
          return (
            <li key={one.number}>
              <JobRef number={one.number} name={name} project={one.project} />
              <span className="sub nowrap">{words.filter(Boolean).join(", ")}</span>
              {effect && <span className={`sub ${css.effect}`}>{effect}</span>}
            </li>
          );
        })}
      </ul>
    </div>
  );
}
