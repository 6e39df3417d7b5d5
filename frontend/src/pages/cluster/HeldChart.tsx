import { useMemo } from "react";
import type { NodeUse } from "../../api/types";
import TimeChart, { type Line } from "../../components/TimeChart";
import { percent } from "../../lib/format";
import { heldWords } from "./nodeWords";

interface Props {
  use: NodeUse;
  gpus: number;
  onRead: (text: string | null) => void;
}

/** GPUs allocated, averaged over each half hour, below all GPUs of the node. */
export default function HeldChart({ use, gpus, onRead }: Props) {
  // One place more at either end, so that no column is cut.
  const times = useMemo(() => Array.from({ length: use.allocated.length + 2 }, (_, i) => Date.parse(use.from_at) / 1000 + use.bucket_s * (i - 0.5)), [use]);
  const lines = useMemo((): Line[] => [
    { label: "allocated", kind: "bar", tone: 0, values: [null, ...use.allocated.map(([, part]) => (part === null ? null : part * gpus)), null] },
    { label: "all", kind: "line", tone: 1, dash: true, dots: false, values: times.map(() => gpus) },
  ], [use, times, gpus]);
  const said = use.allocated_part === null ? "nothing is known" : `${percent(use.allocated_part)} on average`;
  return (
    <div className="pb">
      <TimeChart x={times} lines={lines} height={150} label={`GPUs allocated in each half hour of the last 24 h, of ${gpus}: ${said}`} onRead={(index) => onRead(index === null ? null : heldWords(use, gpus, index - 1))} />
    </div>
  );
}
