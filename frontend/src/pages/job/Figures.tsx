import type { JobDetail } from "../../api/types";
import { fixed, integer, number, THIN, typeName } from "../../lib/format";
import { endFigure, throughputFigure, waitedFigure, type Figure } from "../../lib/jobView";
import { useCluster } from "../../lib/liveContext";
import { whereOf } from "../overview/RunningRow";

function figures(job: JobDetail, now: Date, mean: number | null): Figure[] {
  const share = job.relative_throughput;
  const detail = [job.slowdown === null ? "" : `slowdown ${number(job.slowdown, 2)}${THIN}×`, mean === null ? "" : `cluster mean ${number(mean, 2)}`].filter(Boolean).join(", ");
  return [
    { label: "Progress", value: fixed(job.progress * 100, job.progress < 1 ? 1 : 0), unit: "%", detail: `${integer(job.step)} of ${integer(job.total_steps)} steps` },
    endFigure(job, now),
    { label: "GPUs", value: job.allocation ? String(job.allocation.count) : "0", unit: job.allocation ? `×${THIN}${typeName(job.allocation.type)}` : "", detail: job.allocation ? whereOf(job).long : job.queue_position ? `position ${job.queue_position} in the queue` : "none held" },
    throughputFigure(job),
    { label: "Relative throughput", value: share === null ? "–" : number(share, 2), detail: detail || "1 is as fast as alone" },
    waitedFigure(job),
  ];
}

export function Figures({ job, now }: { job: JobDetail; now: Date }) {
  const mean = useCluster()?.tiles.mean_relative_throughput ?? null;
  return (
    <section className="panel strip" aria-label="Figures">
      {figures(job, now, mean).map((figure) => (
        <div key={figure.label} className="fig">
          <div className="l">{figure.label}</div>
          <div className="v">{figure.value}{figure.unit && <small>{figure.unit}</small>}</div>
          <div className="d" title={figure.detail}>{figure.detail}</div>
        </div>
      ))}
    </section>
  );
}
