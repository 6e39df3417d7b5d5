import { jobMark, jobPaint } from "../../lib/highlight";
import type { JobView } from "../../lib/live/liveContext";
import { number } from "../../lib/format";

const WIDTH = 200;
const X0 = 8;
const X1 = WIDTH - 8;
const BASE = 21;

interface Dot {
  share: number;
  job: number | null;
}

/** One dot a job, coloured where the reader may know the job; dots that would touch are stacked. */
function place(dots: Dot[]): (Dot & { x: number; y: number })[] {
  const placed: (Dot & { x: number; y: number })[] = [];
  const lanes = [0, -7, 7, -14, 14];
  for (const dot of [...dots].sort((a, b) => a.share - b.share)) {
    const x = X0 + Math.min(1, Math.max(0, dot.share)) * (X1 - X0);
    const lane = lanes.find((dy) => placed.every((other) => Math.abs(other.x - x) > 6.5 || other.y !== BASE + dy)) ?? 0;
    placed.push({ ...dot, x, y: BASE + lane });
  }
  return placed;
}

export function dotsOf(jobs: Iterable<JobView>, shares: number[]): Dot[] {
  const own: Dot[] = [];
  for (const job of jobs) {
    const share = job.full?.relative_throughput;
    if (share !== null && share !== undefined && (job.state === "running" || job.state === "rescaling")) own.push({ share, job: job.number });
  }
  const rest = [...shares];
  for (const dot of own) {
    const at = rest.findIndex((share) => Math.abs(share - dot.share) < 0.005);
    if (at >= 0) rest.splice(at, 1);
  }
  const missing = Math.max(0, shares.length - own.length);
  return [...own, ...rest.slice(0, missing).map((share) => ({ share, job: null }))];
}

export function DotStrip({ jobs, shares, mean, className }: { jobs: Map<number, JobView>; shares: number[]; mean: number | null; className: string }) {
  const dots = place(dotsOf(jobs.values(), shares));
  const at = (share: number) => X0 + Math.min(1, share) * (X1 - X0);
  const label = mean === null ? "no running job" : `mean ${number(mean)}`;
  return (
    <div className={className}>
      <p>Relative throughput of each job</p>
      <svg viewBox={`0 0 ${WIDTH} 52`} width="100%" style={{ maxWidth: 260, margin: "0 auto" }} role="img" aria-label={`Relative throughput of ${dots.length} jobs, ${label}`}>
        <path d={`M${X0} ${BASE}H${X1}`} stroke="var(--line-2)" />
        {mean !== null && <path d={`M${at(mean)} ${BASE - 12}V${BASE + 14}`} stroke="var(--ink-2)" strokeWidth="1.5" />}
        {dots.map((dot, i) =>
          dot.job === null ? (
            <circle key={`other-${i}`} cx={dot.x} cy={dot.y} r={3} fill="var(--ghost)" />
          ) : (
            <circle key={dot.job} className="jx" cx={dot.x} cy={dot.y} r={3} style={{ ...jobPaint(dot.job), fill: "var(--job)" }} {...jobMark(dot.job)}>
              <title>{`#${dot.job}: ${number(dot.share)}`}</title>
            </circle>
          ),
        )}
        <text x={X0} y={49} textAnchor="middle">0</text>
        <text x={X1} y={49} textAnchor="middle">1</text>
        <text x={Math.min(Math.max(mean === null ? WIDTH / 2 : at(mean), 52), WIDTH - 52)} y={49} textAnchor="middle">{label}</text>
      </svg>
    </div>
  );
}
