import type { JobDetail, JobTimeline } from "../../api/types";
import { clock, count, duration, indexRanges, partOf, percent, preciseDuration } from "../../lib/format";
import { jobPaint } from "../../lib/highlight";
import { lifeSpan } from "../../lib/job/jobView";
import { JOB_STATES } from "../../lib/job/jobState";
import { anchored, countMarks, tickLabel, timeTicks } from "../../lib/charts/bars";
import { LifeEnd, LifeNow } from "./LifeEnd";

const LEFT = 58;
const STATE_Y = 24;
const STATE_H = 12;
const TOP = 50;
const PLOT_H = 68;

interface Props {
  job: JobDetail;
  timeline: JobTimeline;
  now: Date;
  width: number;
}

export function LifeChart({ job, timeline, now, width }: Props) {
  const { from, to } = lifeSpan(job, timeline, now);
  const share = job.gpus.share_percent;
  const right = width - 6;
  const x = (at: number) => LEFT + ((at - from) / (to - from)) * (right - LEFT);
  const end = (at: string | null) => (at ? Date.parse(at) : Math.min(to, now.getTime()));
  const most = Math.max(job.gpus.max ?? 1, ...timeline.allocations.map((allocation) => allocation.count), 1);
  const height = TOP + PLOT_H + 22;
  const y = (count: number) => TOP + PLOT_H - (count / most) * PLOT_H;
  return (
    <svg width={width} height={height} style={jobPaint(job.number)} role="img" aria-label={`States and GPUs of this job from ${clock(new Date(from))} to ${clock(new Date(to))}`}>
      <defs>
        <pattern id="life-hatch" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><rect width="1.6" height="6" fill="var(--surface)" opacity=".5" /></pattern>
        <pattern id="life-moving" width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><rect width="2.6" height="5" fill="var(--surface)" /></pattern>
      </defs>
      {countMarks(most).map((count) => (
        <g key={count}>
          <path d={`M${LEFT} ${y(count)}H${right}`} stroke="var(--grid)" />
          <text x={LEFT - 8} y={y(count) + 4} textAnchor="end">{share < 100 ? percent((count * share) / 100) : count}</text>
        </g>
      ))}
      <text x={0} y={STATE_Y + 10}>State</text>
      <text x={0} y={TOP + PLOT_H / 2 + 4}>GPUs</text>
      {timeTicks(from, to, width < 460 ? 3 : 6).map((at) => {
        const label = tickLabel(at, to - from);
        return <text key={at} {...anchored(x(at), LEFT, width, label)} y={height - 4}>{label}</text>;
      })}
      {timeline.states.map((state, i) => {
        const x0 = x(Date.parse(state.from_at));
        const box = { x: x0, y: STATE_Y, width: Math.max(1.5, x(end(state.to_at)) - x0 - 0.6), height: STATE_H, rx: 2 };
        if (JOB_STATES[state.coarse].ended) return null;
        return (
          <g key={i}>
            <rect {...box} fill={JOB_STATES[state.coarse].colour}><title>{`${JOB_STATES[state.coarse].word} (${state.state}) ${preciseDuration((end(state.to_at) - Date.parse(state.from_at)) / 1000)} from ${clock(new Date(state.from_at), true)}`}</title></rect>
            {state.state === "RUNNING_PROTECTED" && <rect {...box} fill="url(#life-hatch)" pointerEvents="none" />}
          </g>
        );
      })}
      {timeline.allocations.map((allocation) => <Steps key={`${allocation.epoch}/${allocation.from_at}`} allocation={allocation} share={share} timeline={timeline} x={x} y={y} end={end} />)}
      <Captions job={job} timeline={timeline} x={x} right={right} end={end} />
      {!job.finished_at && <LifeNow x={x(now.getTime())} right={right} top={STATE_Y} bottom={TOP + PLOT_H} now={now} />}
      <LifeEnd job={job} x={x} right={right} y={STATE_Y + STATE_H / 2} to={to} now={now} />
    </svg>
  );
}

interface StepsProps {
  allocation: JobTimeline["allocations"][number];
  share: number;
  timeline: JobTimeline;
  x: (at: number) => number;
  y: (count: number) => number;
  end: (at: string | null) => number;
}

/** One block a GPU; striped while the job launches there. */
function Steps({ allocation, share, timeline, x, y, end }: StepsProps) {
  const from = Date.parse(allocation.from_at);
  const until = end(allocation.to_at);
  const ready = timeline.states.find((state) => state.coarse === "running" && Date.parse(state.from_at) >= from && Date.parse(state.from_at) <= until);
  const x0 = x(from);
  const width = Math.max(1, x(until) - x0);
  const launch = x(ready ? Date.parse(ready.from_at) : until) - x0;
  const nodes = [...new Set(allocation.gpus.map((gpu) => gpu.node))];
  const where = nodes.length === 1 ? `${nodes[0]}, GPU${allocation.gpus.length > 1 ? "s" : ""} ${indexRanges(allocation.gpus.map((gpu) => gpu.index))}` : `${nodes.length} nodes`;
  const room = width - Math.max(0, launch) - 10;
  return (
    <g>
      <title>{`${partOf(share, count(allocation.count, "GPU"))}: ${where}, ${duration((until - from) / 1000)}`}</title>
      {Array.from({ length: Math.min(allocation.count, 64) }, (_, i) => (
        <rect key={i} x={x0} y={y(i + 1) + 0.6} width={width} height={Math.max(0.8, y(i) - y(i + 1) - 1.2)} fill="var(--job)" />
      ))}
      {launch > 0 && <rect x={x0} y={y(allocation.count)} width={Math.min(launch, width)} height={y(0) - y(allocation.count)} fill="url(#life-moving)" />}
      {room > where.length * 5.8 && y(0) - y(allocation.count) >= 13 && (
        <text x={x0 + Math.max(0, launch) + 8} y={y(allocation.count) + 12} style={{ fill: "var(--job-ink)", fontWeight: 500, paintOrder: "stroke", stroke: "var(--job)", strokeWidth: 4 }}>{where}</text>
      )}
    </g>
  );
}

/** Words above the state bar, left to right, only where there is room. */
function Captions({ job, timeline, x, right, end }: { job: JobDetail; timeline: JobTimeline; x: (at: number) => number; right: number; end: (at: string | null) => number }) {
  const captions: { at: number; text: string; colour: string; anchor: "start" | "middle" }[] = [];
  if (job.times.queueing_s >= 1) captions.push({ at: LEFT, text: `Queued ${duration(job.times.queueing_s)}`, colour: "var(--s-queued)", anchor: "start" });
  for (const rescale of timeline.resizes) {
    const at = Date.parse(rescale.at);
    const running = timeline.states.find((state) => state.coarse === "running" && Date.parse(state.from_at) > at);
    const took = running && rescale.after > 0 ? `, ${preciseDuration((Date.parse(running.from_at) - at) / 1000)}` : "";
    captions.push({ at: x(at), text: `${rescale.before}→${rescale.after} GPUs${took}`, colour: "var(--s-rescaling)", anchor: "middle" });
  }
  let free = 0;
  const limit = job.finished_at || !job.expected_end_at ? right : Math.min(right, x(end(null)) + 4);
  return (
    <>
      {captions.map((caption, i) => {
        const width = caption.text.length * 5.9;
        const x0 = Math.max(LEFT, caption.anchor === "middle" ? caption.at - width / 2 : caption.at);
        if (x0 < free || x0 + width > limit + 60 || x0 + width > right) return null;
        free = x0 + width + 8;
        return <text key={i} x={x0} y={STATE_Y - 8} style={{ fill: caption.colour }}>{caption.text}</text>;
      })}
    </>
  );
}
