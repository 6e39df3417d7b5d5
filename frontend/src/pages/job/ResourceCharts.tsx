import "uplot/dist/uPlot.min.css";
import { useMemo, useState } from "react";
import { useResources } from "../../api/hooks";
import type { JobDetail, JobTimeline, Resources } from "../../api/types";
import { Loadable, Panel, Skeleton } from "../../components/Panel";
import { clock, percent } from "../../lib/format";
import { hasEnded } from "../../lib/job/jobState";
import { known, partsAsPercent, profileBasis, profileTitle, profileWords, RESOURCE_NAMES, unknownWords, type Resource } from "./resources";
import { Plot, type Readout } from "./Plot";
import css from "./job.module.css";

interface Props {
  job: JobDetail;
  timeline: JobTimeline | undefined;
}

/** What the job uses of its GPUs over time, and what its program used on each kind of device. */
export default function ResourceCharts({ job, timeline }: Props) {
  const query = useResources(String(job.number), hasEnded(job.state));
  const found = query.data;
  const shown: Resource[] = found && known(found.series).length > 0 ? known(found.series) : ["gpu"];
  return (
    <>
      <div className={`cols ${css.charts}`}>
        {shown.map((name) => <Chart key={name} name={name} query={query} job={job} timeline={timeline} wide={shown.length === 1} />)}
      </div>
      {found && (found.profiles.length > 0 || unknownWords(found)) && <Profiles found={found} job={job} />}
    </>
  );
}

function Chart({ name, query, job, timeline, wide }: Props & { name: Resource; query: ReturnType<typeof useResources>; wide: boolean }) {
  const [readout, setReadout] = useState<Readout | null>(null);
  const right = readout && (
    <span className="sub">
      {clock(new Date(readout.at * 1000), true)} <b style={{ color: "var(--ink)", fontWeight: 600 }}>{readout.value === null ? "–" : percent(readout.value / 100)}</b>
    </span>
  );
  const meta = query.data?.emulated ? "% of one GPU, emulated" : "% of one GPU";
  return (
    <Panel title={RESOURCE_NAMES[name]} meta={meta} right={right} style={wide ? { gridColumn: "1 / -1" } : {}}>
      <Loadable query={query} what={RESOURCE_NAMES[name]} skeleton={<Skeleton height={180} />}>
        {(found) => <Drawn points={found.series[name]} name={name} job={job} timeline={timeline} onReadout={setReadout} />}
      </Loadable>
    </Panel>
  );
}

function Drawn({ points, name, job, timeline, onReadout }: Props & { points: Resources["series"]["gpu"]; name: Resource; onReadout: (readout: Readout | null) => void }) {
  const data = useMemo(() => partsAsPercent(points), [points]);
  const values = data.values.filter((value) => value !== null);
  if (values.length === 0) return <p className="empty" style={{ minHeight: 190 }}>{job.state === "queued" ? "It has not started yet." : hasEnded(job.state) ? "Nothing was sampled." : "Nothing sampled yet: samples are taken while it trains."}</p>;
  if (values.length === 1) return <p className="empty" style={{ minHeight: 190 }}>One sample so far: {percent(values[0]! / 100)}.</p>;
  return <div className={css.plot}><Plot data={data} number={job.number} zero timeline={timeline} onReadout={onReadout} label={RESOURCE_NAMES[name]} /></div>;
}

function Profiles({ found, job }: { found: Resources; job: JobDetail }) {
  const whose = job.model_type ? `all jobs of ${job.model_type}` : "this command";
  const unknown = unknownWords(found);
  return (
    <Panel title="Use by type of device" meta={found.profiles.length > 0 ? whose : undefined}>
      <div className="pb">
        {found.profiles.map((profile) => (
          <dl key={`${profile.type} ${profile.gpus} ${profile.emulated}`}>
            <dt>{profileTitle(profile)}</dt>
            <dd>{profileBasis(profile)}</dd>
            <dd className={css.says}>{profileWords(profile)}</dd>
          </dl>
        ))}
        {unknown && <p className="sub">{unknown}</p>}
      </div>
    </Panel>
  );
}
