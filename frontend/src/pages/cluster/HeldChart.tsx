import { useMemo } from "react";
import type { NodeUse } from "../../api/types";
import TimeChart, { type Line } from "../../components/TimeChart";
import { percent } from "../../lib/format";
import { heldWords } from "../../lib/nodePage";

interface Props {
  use: NodeUse;
  gpus: number;
  onRead: (text: string | null) => void;
}

/** GPUs that were held, in the mean of each half hour, below all that it has. */
export default function HeldChart({ use, gpus, onRead }: Props) {
  const times = useMemo(() => use.held.map(([at]) => at + use.bucket_s / 2), [use]);
  const lines = useMemo((): Line[] => [
    { label: "held", kind: "bar", tone: 0, values: use.held.map(([, part]) => (part === null ? null : part * gpus)) },
    { label: "all", kind: "line", tone: 1, dash: true, dots: false, values: use.held.map(() => gpus) },
  ], [use, gpus]);
  const said = use.held_part === null ? "nothing is known" : `${percent(use.held_part)} in the mean`;
  return (
    <div className="pb">
      <TimeChart x={times} lines={lines} height={150} label={`GPUs held in each half hour of the last 24 h, of ${gpus}: ${said}`} onRead={(index) => onRead(index === null ? null : heldWords(use, gpus, index))} />
    </div>
  );
}
