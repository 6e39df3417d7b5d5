import { memo, type CSSProperties } from "react";
import type { NodeState } from "../../api/types";
import { percent } from "../../lib/format";

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
              const held = gpu?.job != null;
              const share = held ? (gpu?.utilisation ?? 0.6) : 0;
              const out = node.lost || (!held && !node.schedulable);
              const style = { "--heat": `${Math.round(25 + share * 75)}%` } as CSSProperties;
              const words = out ? "out of use" : held ? `#${gpu?.job}, ${percent(share)} busy` : "free";
              return <i key={index} className={out ? "out" : held ? "on" : ""} style={style} title={`${name} GPU ${index}: ${words}`} />;
            })}
          </div>
        </div>
      ))}
    </div>
  );
});
