import { expect, it } from "vitest";
import type { Replay } from "../../api/types";
import { gangWords } from "../../lib/format";
import { gangText, movesWords, replayWords } from "./rounds";

const replay = (change: Partial<Replay>) => ({ same_plan: false, same_gpus: false, jobs_total: 7, changes: {}, ...change }) as Replay;

it("says what a round did", () => {
  expect(movesWords({ start: 2, rescale: 1, preempt: 0 })).toBe("2 starts, 1 rescale");
  expect(movesWords({ start: 0, rescale: 0, preempt: 3 })).toBe("3 preempted");
  expect(movesWords({ start: 0, rescale: 0, preempt: 0 })).toBe("nothing moved");
});

it("says how another plan differs", () => {
  expect(replayWords(replay({ same_plan: true, same_gpus: true }))).toBe("The same plan, to its last letter.");
  expect(replayWords(replay({ same_gpus: true }))).toBe("Every job has the same GPUs; reasons or figures differ.");
  expect(replayWords(replay({ changes: { gained: 2, lost: 1, same: 4 } }))).toBe("Of 7 jobs 2 would have more GPUs, 1 fewer; 4 the same.");
});

it("names a gang", () => {
  expect(gangText(null)).toBe("none");
  expect(gangText({ type: "v100", count: 4 })).toBe(gangWords({ type: "v100", count: 4 }));
});
