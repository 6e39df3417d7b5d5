import { expect, it } from "vitest";
import type { PolicyPreview } from "../../api/types";
import { sentence } from "./effectWords";

const effect = (more: Partial<PolicyPreview>) => ({ starting: 0, waiting: 0, preempted: 0, grown: 0, shrunk: 0, moved: 0, ...more }) as PolicyPreview;

it("says what becomes of the jobs of now", () => {
  expect(sentence(effect({}))).toBe("The next round would give all jobs the same GPUs as the policy in force.");
  expect(sentence(effect({ starting: 1, preempted: 1 }))).toBe("1 job would start, 1 job would leave its GPUs with a checkpoint.");
  expect(sentence(effect({ starting: 2, preempted: 3, grown: 4, shrunk: 5, moved: 6, waiting: 7 }))).toBe(
    "2 jobs would start, 3 jobs would leave their GPUs with a checkpoint, 4 would grow, 5 would shrink, 6 would move to another type, 7 that the policy in force starts now would wait.",
  );
});
