import { isMoving, partWords, type Block } from "../../lib/sentence/blocks";
import { percent } from "../../lib/format";
import type { JobView } from "../../lib/live/liveContext";
import { HeldBlock } from "./HeldBlock";
import { isolated } from "../../lib/isolated";

interface Props {
  block: Block;
  jobs: Map<number, JobView>;
  nodeName: string;
  emulated: boolean;
  freeReason: string | null;
  small: boolean;
}

/** A GPU held in parts: each as large as its share, then what is left of it. */
export function SharedGpu({ block, jobs, nodeName, emulated, freeReason, small }: Props) {
  const { parts, rest, from } = block;
  const where = `${isolated(nodeName)} GPU ${from}`;
  const left = `${percent(rest.percent / 100)} ${rest.face}`;
  const busy = block.utilisation[0];
  const label = `${where}: ${partWords(block)}${busy == null ? "" : `; ${percent(busy)} busy`}`;
  return (
    <div className={small ? "shared small" : "shared"} role="group" aria-label={label} title={label}>
      {parts.map((part) => {
        const job = jobs.get(part.job);
        const share = percent(part.share_percent / 100);
        return (
          <HeldBlock
            key={part.job} number={part.job} job={job} moving={isMoving(part.kind)} guarded={part.kind === "protected"} emulated={emulated}
            where={`${share} of ${where}`} style={{ flexGrow: part.share_percent }}
          >
            <div className="lab">{part.job}{!small && <> <span>{share}</span> <span className="who"><bdi>{job?.name ?? job?.project ?? ""}</bdi></span></>}</div>
          </HeldBlock>
        );
      })}
      {rest.percent > 0 && (
        <div className={`blk free ${rest.face}`} style={{ flexGrow: rest.percent }} title={`${where}: ${left}${freeReason && rest.face === "free" ? `, ${freeReason}` : ""}`}>
          <span>{small ? "" : left}</span>
        </div>
      )}
    </div>
  );
}
