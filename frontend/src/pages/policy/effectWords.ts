import type { PolicyPreview } from "../../api/types";
import { count } from "../../lib/format";

/** What becomes of the jobs of now by another policy. */
export function sentence(effect: PolicyPreview): string {
  const parts = [
    effect.starting > 0 && `${count(effect.starting, "job")} would start`,
    effect.preempted > 0 && `${count(effect.preempted, "job")} would leave their GPUs with a checkpoint`.replace("1 job would leave their", "1 job would leave its"),
    effect.grown > 0 && `${effect.grown} would grow`,
    effect.shrunk > 0 && `${effect.shrunk} would shrink`,
    effect.moved > 0 && `${effect.moved} would move to another type`,
    effect.waiting > 0 && `${effect.waiting} that the policy in force starts now would wait`,
  ].filter((part) => part !== false);
  return parts.length === 0 ? "The next round would give all jobs the same GPUs as the policy in force." : `${parts.join(", ")}.`;
}
