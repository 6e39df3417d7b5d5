import { expect, it } from "vitest";
import type { Job } from "../../api/types";
import { lossWords, reasonSentence, retrySentence } from "./jobView";

const NOW = new Date("2026-11-21T14:32:00Z");
const retry = (at: string | null, of: number | null) => ({ at, attempt: 2, of, why: "Failed with code 1" });

it("counts down to the next attempt and says which one it will be", () => {
  expect(retrySentence(retry("2026-11-21T14:32:19Z", 3), NOW)).toBe("Failed with code 1; tried again in 19\u2009s (attempt 2 of 3).");
  expect(retrySentence(retry("2026-11-21T14:32:00.4Z", null), NOW)).toBe("Failed with code 1; tried again in 1\u2009s (attempt 2).");
  expect(retrySentence(retry("2026-11-21T14:32:00Z", 3), NOW)).toBeNull();
});

it("says what the reason says once the wait is over", () => {
  const job = { state: "queued", exit: null, reason: { code: "no_room", text: "No room." } } as Job;
  expect(reasonSentence({ ...job, retry: retry("2026-11-21T14:31:00Z", 3) }, NOW)).toBe("No room.");
  expect(reasonSentence({ ...job, retry: retry("2026-11-21T14:33:00Z", 3) }, NOW)).toContain("tried again in 1\u2009min");
});

it("says of a cancelled job that its program still leaves", () => {
  expect(reasonSentence({ state: "cancelled", ending: true, exit: null, reason: { code: "CANCEL", text: "cancelled" } } as Job, NOW)).toContain("10 s to save");
});

it("does not promise that a program without steps loses nothing", () => {
  expect(lossWords({ step: 0, times: { running_s: 60 } } as Job, [])).toContain("does not save is lost");
  expect(lossWords({ step: 0, times: { running_s: 0 } } as Job, [])).toContain("no work is lost");
});
