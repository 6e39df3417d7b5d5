import type { NodeState } from "../../api/types";
import { nodeBlocks } from "../../lib/sentence/blocks";
import type { JobView } from "../../lib/live/liveContext";
import { GpuBlock } from "./GpuBlock";
import { SharedGpu } from "./SharedGpu";

interface Props {
  name: string;
  node: NodeState;
  jobs: Map<number, JobView>;
  now: Date;
  columns: number;
  small: boolean;
}

/** A node's GPUs, a block for each job side by side. */
export function NodeGpus({ name, node, jobs, now, columns, small }: Props) {
  return (
    <div className="gpus" style={{ gridTemplateColumns: `repeat(${columns},minmax(0,1fr))` }}>
      {nodeBlocks(node, columns).map((block) => {
        const of = { block, nodeName: name, emulated: node.emulated, freeReason: node.free_reason ?? null, small };
        if (block.face === "shared") return <SharedGpu key={block.from} {...of} jobs={jobs} />;
        return <GpuBlock key={block.from} {...of} othersUntil={node.others_until_at ?? null} job={block.job === null ? undefined : jobs.get(block.job)} now={now} />;
      })}
    </div>
  );
}
