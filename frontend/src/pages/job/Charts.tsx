import "uplot/dist/uPlot.min.css";
import { useMemo, useState } from "react";
import { useMetrics } from "../../api/hooks";
import type { JobDetail, JobTimeline, Metrics } from "../../api/types";
import { Loadable, Panel, Skeleton } from "../../components/Panel";
import { clock, integer, number } from "../../lib/format";
import { hasEnded } from "../../lib/job/jobState";
import { alignSeries, oneSample, type ChartData } from "./series";
import { Plot, type Readout } from "./Plot";
import css from "./job.module.css";

const SPEED = "steps_per_s";

export default function Charts({ job, timeline }: { job: JobDetail; timeline: JobTimeline | undefined }) {
  const query = useMetrics(String(job.number), hasEnded(job.state));
  const names = (query.data?.names ?? []).filter((name) => name !== SPEED);
  const [chosen, setChosen] = useState<string | null>(null);
  const metric = chosen ?? (names.includes("loss") ? "loss" : (names[0] ?? "loss"));
  return (
    <div className={`cols ${css.charts}`}>
      <Chart title="Throughput" unit="steps/s" name={SPEED} job={job} timeline={timeline} query={query} predicted />
      <Chart
        title={metric === "loss" ? "Loss" : metric} unit="training" name={metric} job={job} timeline={timeline} query={query}
        choice={names.length > 1 ? { names, metric, setChosen } : undefined}
      />
    </div>
  );
}

interface ChartProps {
  title: string;
  unit: string;
  name: string;
  job: JobDetail;
  timeline: JobTimeline | undefined;
  query: ReturnType<typeof useMetrics>;
  predicted?: boolean;
  choice?: { names: string[]; metric: string; setChosen: (name: string) => void } | undefined;
}

function Chart({ title, unit, name, job, timeline, query, predicted = false, choice }: ChartProps) {
  const [readout, setReadout] = useState<Readout | null>(null);
  const right = readout ? (
    <span className="sub">
      {clock(new Date(readout.at * 1000), true)} <b style={{ color: "var(--ink)", fontWeight: 600 }}>{readout.value === null ? "–" : number(readout.value)}</b>
      {readout.second !== null && `, predicted ${number(readout.second)}`}{!predicted && readout.step !== null && `, step ${integer(readout.step)}`}
    </span>
  ) : choice ? (
    <select className="in" style={{ height: 26, fontSize: 12, width: "auto", maxWidth: 220 }} aria-label="Metric" value={choice.metric} onChange={(event) => choice.setChosen(event.target.value)}>
      {choice.names.map((entry) => <option key={entry}>{entry}</option>)}
    </select>
  ) : undefined;
  return (
    <Panel title={title} meta={unit} right={right}>
      <Loadable query={query} what={title} skeleton={<Skeleton height={180} />}>
        {(metrics) => <Drawn metrics={metrics} name={name} job={job} timeline={timeline} predicted={predicted} onReadout={setReadout} title={title} />}
      </Loadable>
    </Panel>
  );
}

interface DrawnProps {
  metrics: Metrics;
  name: string;
  job: JobDetail;
  timeline: JobTimeline | undefined;
  predicted: boolean;
  onReadout: (readout: Readout | null) => void;
  title: string;
}

function Drawn({ metrics, name, job, timeline, predicted, onReadout, title }: DrawnProps) {
  const points = metrics.series[name];
  const data: ChartData | null = useMemo(
    () => (points && points.length > 0 ? alignSeries(points, predicted ? metrics.predicted_steps_per_s : [], timeline?.resizes ?? []) : null),
    [points, predicted, metrics, timeline],
  );
  if (!data) return <p className="empty" style={{ minHeight: 190 }}>{job.state === "queued" ? "It has not started yet." : hasEnded(job.state) ? "It reported none." : "Nothing reported yet."}</p>;
  const only = oneSample(points ?? [], predicted ? "steps/s" : "");
  if (only) return <p className="empty" style={{ minHeight: 190 }}>{only}</p>;
  return <div className={css.plot}><Plot data={data} number={job.number} zero={predicted} timeline={timeline} onReadout={onReadout} label={title} /></div>;
}
