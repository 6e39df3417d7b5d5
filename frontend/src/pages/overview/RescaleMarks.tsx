import type { ClusterTimeline } from "../../api/types";
import type { Bar, Lane } from "../../lib/charts/bars";
import { clock } from "../../lib/format";

interface Props {
  rescales: ClusterTimeline["resizes"];
  bars: Bar[];
  lanes: Map<string, Lane>;
  x: (at: number) => number;
  from: number;
  now: number;
}

/** The bar a rescale leads to: the first one of the job that starts at or soon after it. */
function target(number: number, at: number, bars: Bar[]): Bar | undefined {
  const after = bars.filter((bar) => bar.job.number === number && bar.start >= at - 2000);
  return after.sort((a, b) => a.start - b.start || a.from - b.from)[0];
}

interface Mark {
  key: string;
  x: number;
  y: number;
  label: string;
  title: string;
  number: number;
  width: number;
}

export function RescaleMarks({ rescales, bars, lanes, x, from, now }: Props) {
  const marks: Mark[] = [];
  for (const rescale of rescales) {
    const at = Date.parse(rescale.at);
    const bar = at >= from && at <= now && rescale.before > 0 && rescale.after > 0 ? target(rescale.number, at, bars) : undefined;
    const lane = bar && lanes.get(bar.node);
    if (!bar || !lane) continue;
    const label = `${rescale.before}→${rescale.after}`;
    const width = label.length * 6.4 + 7;
    const mark = { key: `${rescale.number}/${rescale.at}`, x: x(bar.start), y: lane.top + bar.from * lane.row, label, width, number: rescale.number, title: `#${rescale.number} ${label} GPUs at ${clock(new Date(at), true)}` };
    const crowded = marks.some((other) => Math.abs(other.x - mark.x) < other.width && Math.abs(other.y - mark.y) < 13);
    if (!crowded) marks.push(mark);
  }
  return (
    <>
      {marks.map((mark) => (
        <g key={mark.key} className="jx" data-job={mark.number} pointerEvents="none">
          <rect x={mark.x - mark.width + 2} y={mark.y - 1} width={mark.width} height={13} rx={3} fill="var(--surface)" stroke="var(--line-2)" strokeWidth=".6" />
          <text x={mark.x - mark.width / 2 + 2} y={mark.y + 9} textAnchor="middle" style={{ fill: "var(--ink)", fontWeight: 600, fontSize: 10 }}>{mark.label}</text>
          <title>{mark.title}</title>
        </g>
      ))}
    </>
  );
}
