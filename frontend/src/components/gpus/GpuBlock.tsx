import type { Block } from "../../lib/sentence/blocks";
import { duration, indexRanges, moment, number, percent, withUnit } from "../../lib/format";
import type { JobView } from "../../lib/live/liveContext";
import { HeldBlock } from "./HeldBlock";
import { isolated } from "../../lib/isolated";

interface Props {
  block: Block;
  job: JobView | undefined;
  nodeName: string;
  emulated: boolean;
  freeReason: string | null;
  /** When the first of others' GPUs on the node are to be free. */
  othersUntil: string | null;
  small: boolean;
  now: Date;
}

function secondLine(block: Block, job: JobView, now: Date): string {
  const full = job.full;
  if (!full) return job.project;
  if (block.face === "moving") {
    if (job.state === "rescaling") return `moving, step ${full.step.toLocaleString("en-US")}`;
    const since = full.started_at ?? full.submitted_at;
    return full.state === "starting" && since ? `starting, ${duration((now.getTime() - Date.parse(since)) / 1000)}` : "launching";
  }
  const speed = full.throughput?.steps_per_s;
  const done = percent(full.progress);
  return speed == null || block.size === 1 ? done : `${withUnit(number(speed), "steps/s")}, ${done}`;
}

export function GpuBlock({ block, job, nodeName, emulated, freeReason, othersUntil, small, now }: Props) {
  const span = { gridColumn: `span ${block.size}` };
  const size = small ? " small" : "";
  const where = `${isolated(nodeName)} GPU ${indexRanges(Array.from({ length: block.size }, (_, i) => block.from + i))}`;
  if (block.job === null) {
    const others = othersUntil === null ? "by others" : `by others until ${moment(new Date(othersUntil), now)}`;
    const words = { free: freeReason ?? "free", draining: freeReason ?? "draining", lost: "lost", others, held: "", moving: "", shared: "" }[block.face];
    return <div className={`blk free ${block.face}${size}`} style={span} title={`${where}: ${words}`}><span>{small ? "" : words}</span></div>;
  }
  return (
    <HeldBlock number={block.job} job={job} moving={block.face === "moving"} guarded={block.protected} emulated={emulated} where={where} className={size} style={span}>
      {Array.from({ length: block.size - 1 }, (_, i) => <i key={i} className="tick" style={{ left: `${((i + 1) / block.size) * 100}%` }} />)}
      <div className="lab">{block.job} <span><bdi>{job?.name ?? job?.project ?? ""}</bdi></span></div>
      {job && !small && <div className="lab">{secondLine(block, job, now)}</div>}
      {block.face === "held" && !small && block.utilisation.map((share, i) => share !== null && (
        <span key={i} className="u" style={{ left: `calc(${(i / block.size) * 100}% + 8px)`, width: `calc(${100 / block.size}% - 16px)` }}>
          <i style={{ width: `${Math.min(100, share * 100)}%` }} />
        </span>
      ))}
    </HeldBlock>
  );
}
