import { describe, expect, it } from "vitest";
import type { ExpectedStart } from "../../api/types";
import { startWords } from "./expectedStart";

const now = new Date(2026, 10, 21, 14, 32, 0);
const after = (minutes: number) => new Date(now.getTime() + minutes * 60_000).toISOString();
const said: ExpectedStart = {
  p10_at: after(10), p50_at: after(20), p90_at: after(40), as_of: after(-0.5), basis: "simulated", run_time: "history", outcomes: 412, reason: null,
};

describe("expected starts", () => {
  it("say the range and the middle", () => expect(startWords(said, now)?.sentence).toBe("in 10\u2009min to 40\u2009min, most likely 20\u2009min"));
  it("say the times of day", () => expect(startWords(said, now)?.at).toBe("14:52 (14:42–15:12)"));
  it("say what they rest on and how old they are", () =>
    expect(startWords(said, now)?.basis).toBe("from simulating the queue, calibrated on 412 starts, its run time from earlier jobs of its owner or of its size, worked out 30\u2009s ago"));
  it("say it once where all is known", () =>
    expect(startWords({ ...said, p10_at: said.p50_at, p90_at: said.p50_at }, now)?.sentence).toBe("in 20\u2009min"));
  it("say nothing that lies in the past", () => expect(startWords({ ...said, p10_at: after(-5) }, now)?.range).toBe("in 0\u2009s to 40\u2009min"));
  it("are silent where nothing can be said", () =>
    expect(startWords({ ...said, p10_at: null, p50_at: null, p90_at: null, reason: { code: "held", text: "It is held." } }, now)).toBeNull());
});
