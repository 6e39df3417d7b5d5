import { describe, expect, it } from "vitest";
import type { JobDetail, Session } from "../../api/types";
import { allowed, diff, formOf, patchOf } from "./jobActions";

const job = (changes: object = {}) => ({
  name: "night", project: { key: "vision", name: "Vision" }, state: "running", can_cancel: true, hold: null, labels: { a: "1", b: "2" }, total_steps: 100,
  nice: 0, priority: 0, max_cost: null, max_duration_s: null, deadline_at: null, spec: {}, ...changes,
}) as unknown as JobDetail;
const as = (role: string | null, is_admin = false) => ({ user: { is_admin }, projects: role ? [{ key: "vision", name: "Vision", role }] : [] }) as unknown as Session;
const held = (kind: string) => job({ state: "queued", hold: { kind, by: "Ana", at: "", text: "" } });

describe("what is offered", () => {
  it("is nothing to viewers", () => expect(Object.values(allowed(job(), as("viewer")))).not.toContain(true));
  it("is everything but the priority to members", () => expect(allowed(job(), as("member"))).toEqual({ edit: true, hold: true, release: false, resubmit: true, cancel: true, stopRetrying: false, priority: false }));
  it("leaves of an ended job its description and its repetition", () =>
    expect(allowed(job({ state: "succeeded", can_cancel: false }), as("member"))).toEqual({ edit: true, hold: false, release: false, resubmit: true, cancel: false, stopRetrying: false, priority: false }));
  it("is the release of one's own hold, not of an administrator's", () => {
    expect(allowed(held("user"), as("member")).release).toBe(true);
    expect(allowed(held("admin"), as("member")).release).toBe(false);
    expect(allowed(held("admin"), as(null, true)).release).toBe(true);
  });
  it("is a larger max_cost instead of a release for a parked job", () => expect(allowed(held("cost"), as("member"))).toMatchObject({ release: false, hold: false, edit: true }));
});

describe("a patch", () => {
  const before = formOf(job());
  it("holds only what was changed", () => {
    expect(patchOf(before, before)).toEqual({});
    expect(patchOf(before, { ...before, total_steps: "200", name: "day" })).toEqual({ total_steps: 200, name: "day" });
  });
  it("removes labels and limits with null", () => {
    expect(patchOf(before, { ...before, labels: "a=1, c=3" })).toEqual({ labels: { b: null, c: "3" } });
    const limited = formOf(job({ max_cost: "5", max_duration_s: 60, deadline_at: "2026-11-21T10:00:00Z" }));
    expect(patchOf(limited, { ...limited, max_cost: "", max_duration: "", deadline: "" })).toEqual({ max_cost: null, max_duration: null, deadline: null });
  });
  it("sends what is no number as it was typed, for the portal to name", () => expect(patchOf(before, { ...before, total_steps: "many", max_duration: "2h" })).toEqual({ total_steps: "many", max_duration: "2h" }));
  it("keeps a deadline that was not touched", () => expect(patchOf(formOf(job({ deadline_at: "2026-11-21T10:00:30Z" })), formOf(job({ deadline_at: "2026-11-21T10:00:30Z" })))).toEqual({}));
});

it("says the difference of two job files as a merge patch", () => {
  const before = { name: "a", gpus: { min: 1, max: 4 }, env: { A: "1" }, command: "x", resume_from: { job: 1, step: 2 } };
  const after = { name: "a", gpus: { min: 1, max: 8 }, command: "x", resume_from: { job: 3 } };
  expect(diff(before, after)).toEqual({ gpus: { max: 8 }, env: null, resume_from: { job: 3 } });
});
