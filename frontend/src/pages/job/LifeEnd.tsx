import type { JobDetail } from "../../api/types";
import { clock, moment } from "../../lib/format";
import { JOB_STATES } from "../../lib/job/jobState";

export function LifeNow({ x, right, top, bottom, now }: { x: number; right: number; top: number; bottom: number; now: Date }) {
  const fits = right - x > 62;
  return (
    <g>
      <path d={`M${x} ${top - 4}V${bottom}`} stroke="var(--accent)" strokeWidth="1.6" />
      {fits && <text x={x + 4} y={bottom - 4} style={{ fill: "var(--accent)" }}>now {clock(now)}</text>}
    </g>
  );
}

interface EndProps {
  job: JobDetail;
  x: (at: number) => number;
  right: number;
  y: number;
  to: number;
  now: Date;
}

/** Where the job ended, or where it is expected to: a dot in its range at the end of a dotted line. */
export function LifeEnd({ job, x, right, y, to, now }: EndProps) {
  if (job.finished_at) {
    const badge = JOB_STATES[job.state];
    return <text x={right} y={y - 14} textAnchor="end" style={{ fill: badge.colour, fontWeight: 500 }}>{badge.word} {moment(new Date(job.finished_at), now)}</text>;
  }
  if (!job.expected_end_at) return null;
  const at = Math.min(Date.parse(job.expected_end_at), to);
  const low = job.expected_end_low_at ? Date.parse(job.expected_end_low_at) : at;
  const high = job.expected_end_high_at ? Math.min(Date.parse(job.expected_end_high_at), to) : at;
  const start = x(now.getTime());
  const beyond = Date.parse(job.expected_end_at) > to;
  return (
    <g>
      <path d={`M${start + 3} ${y}H${x(at)}`} stroke="var(--s-running)" strokeWidth="2" strokeDasharray="2 4" />
      {high > low && <rect x={x(Math.max(low, now.getTime()))} y={y - 4} width={Math.max(2, x(high) - x(Math.max(low, now.getTime())))} height={8} rx={2} fill="var(--s-succeeded)" opacity=".25" />}
      {!beyond && <circle cx={x(at)} cy={y} r={4} fill="var(--s-succeeded)" />}
      <text x={right} y={y - 14} textAnchor="end" style={{ fill: "var(--s-succeeded)" }}>Expected end {moment(new Date(job.expected_end_at), now)}</text>
    </g>
  );
}
