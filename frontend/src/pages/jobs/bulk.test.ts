import { describe, expect, it } from "vitest";
import type { BulkAction, Job, Session } from "../../api/types";
import { consequence, labelPatch, outlook, outlookWords } from "./bulk";

const session = (admin = false) => ({ user: { is_admin: admin }, projects: [{ key: "vision", role: "member" }, { key: "speech", role: "viewer" }] }) as unknown as Session;
let next = 10;
const job = (changes: object = {}) => ({
  number: (next += 1), project: { key: "vision" }, state: "running", can_cancel: true, hold: null, restartable: true, step: 5, cost: { so_far: "1.50", currency: "USD" }, ...changes,
}) as unknown as Job;
const words = (action: BulkAction, jobs: Job[], as = session()) => outlookWords(action, outlook(action, jobs, as));

describe("what an act does to several jobs", () => {
  it("is said before, with why not for the others", () => {
    const jobs = [job({ number: 1 }), job({ number: 2 }), job({ number: 12, state: "succeeded", can_cancel: false })];
    expect(words("cancel", jobs)).toBe("2 of 3 can be cancelled; #12 has ended.");
    expect(words("cancel", jobs.slice(0, 2))).toBe("All 2 can be cancelled.");
    expect(words("cancel", jobs.slice(0, 1))).toBe("#1 can be cancelled.");
    expect(words("cancel", jobs.slice(2))).toBe("None can be cancelled; #12 has ended.");
    expect(words("resubmit", jobs)).toBe("All 3 can be resubmitted.");
  });

  it("names a few of many and counts the rest", () => {
    const ended = [1, 2, 3, 4, 5].map((number) => job({ number, state: "failed" }));
    expect(words("hold", [...ended, job()])).toBe("1 of 6 can be put on hold; #1, #2, #3 and 2 more have ended.");
    expect(words("hold", [...ended.slice(0, 2), job()])).toBe("1 of 3 can be put on hold; #1 and #2 have ended.");
  });

  it("leaves alone what one may only look at", () => {
    const foreign = job({ number: 7, project: { key: "speech" } });
    for (const action of ["cancel", "hold", "release", "label", "resubmit"] as const) expect(words(action, [foreign])).toContain("#7 is in a project where you may only look");
    expect(outlook("cancel", [foreign], session(true)).can).toEqual([foreign]);
  });

  it("holds what is not held, and releases what one may release", () => {
    const held = (kind: string, number: number) => job({ number, state: "queued", hold: { kind, by: null, at: "", text: "" } });
    expect(words("hold", [held("user", 1), job({ number: 2 })])).toBe("1 of 2 can be put on hold; #1 is on hold already.");
    expect(words("hold", [job({ number: 3, restartable: false })])).toContain("would start from the beginning");
    expect(words("hold", [job({ number: 3, restartable: false, state: "queued" })])).toBe("#3 can be put on hold.");
    expect(words("release", [held("user", 1), held("cost", 2), held("admin", 3), job({ number: 4 })])).toBe(
      "1 of 4 can be released; #2 is suspended at its max_cost: raise that; #3 was put on hold by an administrator; #4 is not on hold.",
    );
    expect(outlook("release", [held("admin", 3)], session(true)).cannot).toEqual([]);
  });

  it("says what is lost", () => {
    expect(consequence("cancel", [job({ step: 0 })])).toContain("no work is lost");
    expect(consequence("cancel", [job(), job(), job({ step: 0 })])).toMatch(/^2 have trained: .* \$3\.00 has been spent\. A cancelled job does not start again\.$/);
    expect(consequence("hold", [job(), job({ state: "queued" })])).toMatch(/^1 job writes a checkpoint/);
    expect(consequence("hold", [job({ state: "queued" })])).toBe("They wait until they are released.");
  });
});

describe("labels", () => {
  it("are added and removed in one", () => {
    expect(labelPatch("sweep=7, stage = nightly", ["draft"])).toEqual({ sweep: "7", stage: "nightly", draft: null });
    expect(labelPatch("draft=2", ["draft"])).toEqual({ draft: "2" });
    expect(labelPatch(" ", [])).toEqual({});
  });
});
