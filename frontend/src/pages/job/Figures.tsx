import type { JobCost, JobDetail } from "../../api/types";
import { FigureStrip } from "../../components/FigureStrip";
import { fixed, gangWords, integer, number, THIN, withUnit } from "../../lib/format";
import { whereOf } from "../../lib/job/allocation";
import { endFigure, throughputFigure, waitedFigure, type Figure } from "../../lib/job/jobView";
import { useCluster } from "../../lib/live/liveContext";

/** Of a job that has ended: it holds none now. */
function heldFigure(job: JobDetail, cost: JobCost | undefined): Figure {
  const held_s = job.times.launching_s + job.times.running_s;
  if (!cost || held_s <= 0) return { label: "GPUs", value: "–", detail: held_s > 0 ? "" : "no GPUs" };
  return { label: "GPUs", value: number((cost.gpu_hours * 3600) / held_s, 2), unit: "on average", detail: `${withUnit(number(cost.gpu_hours), "GPU-hours")} allocated` };
}

/** The number large, the rest as its unit. */
function gpuFigure(job: JobDetail): Figure {
  const { allocation } = job;
  if (!allocation) return { label: "GPUs", value: "0", detail: job.queue_position ? `position ${job.queue_position} in the queue` : "no GPUs" };
  const words = gangWords(allocation);
  const end = words.indexOf(THIN);
  return { label: "GPUs", value: words.slice(0, end), unit: words.slice(end + 1), detail: whereOf(job).long };
}

function figures(job: JobDetail, now: Date, mean: number | null, cost: JobCost | undefined): Figure[] {
  const share = job.relative_throughput;
  const detail = [job.slowdown === null ? "" : `slowdown ${number(job.slowdown, 2)}${THIN}×`, mean === null ? "" : `cluster mean ${number(mean, 2)}`].filter(Boolean).join(", ");
  return [
    { label: "Progress", value: fixed(job.progress * 100, job.progress < 1 ? 1 : 0), unit: "%", detail: `${integer(job.step)} of ${integer(job.total_steps)} steps` },
    endFigure(job, now),
    job.finished_at ? heldFigure(job, cost) : gpuFigure(job),
    throughputFigure(job),
    { label: "Relative throughput", value: share === null ? "–" : number(share, 2), detail: job.finished_at ? "of jobs with GPUs" : detail || "1 is as fast as alone" },
    waitedFigure(job),
  ];
}

export function Figures({ job, cost, now }: { job: JobDetail; cost: JobCost | undefined; now: Date }) {
  const mean = useCluster()?.tiles.mean_relative_throughput ?? null;
  return <FigureStrip figures={figures(job, now, mean, cost)} />;
}
