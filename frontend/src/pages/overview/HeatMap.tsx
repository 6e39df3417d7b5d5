import { memo, type CSSProperties } from "react";
import type { NodeState } from "../../api/types";
import { holdersOf, partWords } from "../../lib/sentence/blocks";
import { percent } from "../../lib/format";
import { isolated } from "../../lib/isolated";

/** Above a thousand GPUs: one small square a GPU, darker where it is busier; names stay readable, jobs do not. */
export const HeatMap = memo(function HeatMap({ nodes }: { nodes: [string, NodeState][] }) {
  return (
    <div className="heat">
      {nodes.map(([name, node]) => (
        <div className="hn" key={name}>
          <span>{name}</span>
          <div className="cells">
            {Array.from({ length: node.gpus }, (_, index) => {
              const gpu = node.accelerators[String(index)];
              const holders = gpu ? holdersOf(gpu) : [];
              const held = holders.length > 0;
              const share = held ? (gpu?.utilisation ?? 0.6) : 0;
              const out = node.lost || (!held && !node.schedulable);
              const others = gpu?.state === "others";
              const style = { "--heat": `${Math.round(25 + share * 75)}%` } as CSSProperties;
              const words = out ? "out of use" : held ? `${partWords({ parts: holders, rest: { percent: gpu?.free_percent ?? 0, face: "free" } })}, ${percent(share)} busy` : others ? "by others" : "free";
              return <i key={index} className={out || others ? "out" : held ? "on" : ""} style={style} title={`${isolated(name)} GPU ${index}: ${words}`} />;
            })}
          </div>
        </div>
      ))}
    </div>
  );
});
