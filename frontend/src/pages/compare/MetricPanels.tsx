import { lazy, Suspense, useMemo, useState } from "react";
import { useMetricsOf } from "../../api/compareHooks";
import type { JobDetail, Metrics } from "../../api/types";
import { Fault, Panel, Skeleton } from "../../components/Panel";
import { capital, integer, number } from "../../lib/format";
import { jobPaint } from "../../lib/highlight";
import { DASHES, metricNames, overSteps, SPEED, valuesAt } from "./compare";
import css from "./compare.module.css";

const StepPlot = lazy(() => import("./StepPlot"));
/** As many as stay readable side by side. */
const MOST_METRICS = 12;

/** Throughput and every metric that one of the jobs reported, each over steps. */
export function MetricPanels({ jobs }: { jobs: JobDetail[] }) {
  const queries = useMetricsOf(jobs);
  const found = queries.map((query) => query.data);
  const names = metricNames(found);
  const failed = queries.find((query) => query.error && !query.data);
  if (failed) return <Fault what="The metrics" query={failed} />;
  if (names.length === 0) {
    const pending = queries.some((query) => query.isPending);
    return pending ? <Skeleton height={240} /> : <Panel title="Metrics"><p className="empty">None of them has reported anything yet.</p></Panel>;
  }
  return (
    <>
      <div className={`cols ${css.charts}`}>
        {names.slice(0, MOST_METRICS).map((name) => <MetricPanel key={name} name={name} jobs={jobs} found={found} />)}
      </div>
      {names.length > MOST_METRICS && <p className="sub">{integer(names.length - MOST_METRICS)} more metrics are on the jobs' own pages.</p>}
    </>
  );
}

function MetricPanel({ name, jobs, found }: { name: string; jobs: JobDetail[]; found: (Metrics | undefined)[] }) {
  const [one, two, three, four] = found.map((metrics) => metrics?.series[name]);
  const lines = jobs.length;
  const chart = useMemo(() => overSteps([one, two, three, four].slice(0, lines)), [one, two, three, four, lines]);
  const [index, setIndex] = useState<number | null>(null);
  const values = valuesAt(chart, index ?? chart.steps.length - 1);
  const title = name === SPEED ? "Throughput" : capital(name);
  const step = chart.steps[index ?? chart.steps.length - 1];
  return (
    <Panel title={title} meta={name === SPEED ? "steps/s over steps" : "over steps"} right={<span className="sub">{step === undefined ? "" : `step ${integer(step)}`}</span>}>
      <div className={css.legend}>
        {jobs.map((job, i) => (
          <span key={job.number} style={jobPaint(job.number)}>
            <Dash at={i} /><span className="num">{job.number}</span> <b>{values[i] == null ? "–" : number(values[i])}</b>
          </span>
        ))}
      </div>
      <div className={css.plot}>
        <Suspense fallback={<Skeleton height={200} />}>
          <StepPlot chart={chart} numbers={jobs.map((job) => job.number)} zero={name === SPEED} label={title} onRead={setIndex} />
        </Suspense>
      </div>
    </Panel>
  );
}

/** The line as the chart draws it. */
function Dash({ at }: { at: number }) {
  return <svg width={26} height={8} aria-hidden><line x1={1} x2={25} y1={4} y2={4} stroke="var(--job)" strokeWidth={2} strokeDasharray={DASHES[at % DASHES.length]?.join(" ")} /></svg>;
}
