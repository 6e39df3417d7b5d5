import { useElementSize } from "@mantine/hooks";
import type { UseQueryResult } from "@tanstack/react-query";
import type { JobDetail, JobTimeline } from "../../api/types";
import { Loadable, Panel, Skeleton } from "../../components/Panel";
import { StateGlyph } from "../../components/icons";
import { JOB_STATES } from "../../lib/job/jobState";
import { jobPaint } from "../../lib/highlight";
import { LifeChart } from "./LifeChart";

interface Props {
  job: JobDetail;
  timeline: UseQueryResult<JobTimeline>;
  now: Date;
}

export function LifePanel({ job, timeline, now }: Props) {
  const { ref, width } = useElementSize();
  const seen = new Set(timeline.data?.states.map((state) => state.coarse) ?? []);
  const legend = (["starting", "running", "rescaling"] as const).filter((state) => seen.has(state));
  return (
    <Panel
      title="Life of this job" meta={<span className="only-wide">states above, allocated GPUs below</span>}
      right={
        <div className="legend">
          {legend.map((state) => <span key={state} style={{ color: JOB_STATES[state].colour }}><StateGlyph glyph={JOB_STATES[state].glyph} size={12} />{JOB_STATES[state].word}</span>)}
          {timeline.data?.states.some((state) => state.state === "RUNNING_PROTECTED") && (
            <span><i className="lg" style={{ ...jobPaint(4), background: "var(--s-running)" }}><i className="hx protected" /></i>protected</span>
          )}
        </div>
      }
    >
      <Loadable query={timeline} what="The life of this job" skeleton={<Skeleton height={150} />}>
        {(data) => (
          <div className="pb">
            <div ref={ref} style={{ minHeight: 150 }}>{width > 0 && <LifeChart job={job} timeline={data} now={now} width={width} />}</div>
          </div>
        )}
      </Loadable>
    </Panel>
  );
}
