import { expect, it } from "vitest";
import type { AcceleratorType, ExpectedStart, JobPreview, Partition } from "../../api/types";
import type { ClusterState } from "../live/blanks";
import { askOf, costBasis, typesWithin, verdictOf } from "./preview";

const node = (type: string) => ({ type });
const cluster = { nodes: { a: node("k1"), b: node("k1"), c: node("k2") } } as unknown as ClusterState;
const part = (name: string, more: Partial<Partition>) => ({ name, nodes: [], accelerator_types: [], is_default: false, ...more }) as unknown as Partition;
const day = part("day", { nodes: ["a"] });

it("offers the types that nodes of the partition have", () => {
  expect(typesWithin(["k1", "k2"], cluster, [day], "day")).toEqual(["k1"]);
  expect(typesWithin(["k1", "k2"], cluster, [part("fast", { accelerator_types: ["k2"] })], "fast")).toEqual(["k2"]);
  expect(typesWithin(["k1", "k2"], cluster, [part("all", { nodes: ["a", "b"], is_default: true })], undefined)).toEqual(["k1"]);
  expect(typesWithin(["k1", "k2"], cluster, [], undefined)).toEqual(["k1", "k2"]);
  expect(typesWithin(["k1"], null, [day], "day")).toEqual(["k1"]);
});

const types = [{ name: "k1", count: 8 }, { name: "k2", count: 2 }] as unknown as AcceleratorType[];

it("asks for as many GPUs as the file says, in whichever way, or a part of one", () => {
  const asked = (gpus: unknown) => {
    const { min, max, sharePercent } = askOf({ gpus }, types);
    return [min, max, sharePercent];
  };
  expect([asked(undefined), asked({ min: 2 }), asked({ min: 1, types: ["k2"] }), asked(3)]).toEqual([[1, 8, 100], [2, 8, 100], [1, 2, 100], [3, 3, 100]]);
  expect([asked(0.5), asked({ share: 0.25, memory: "6GiB" }), asked({ min: 1, max: 1, share: 1 })]).toEqual([[1, 1, 50], [1, 1, 25], [1, 1, 100]]);
});

const now = new Date("2026-11-21T14:32:00Z");
const said = (more: Partial<JobPreview>) => ({ verdict: "later", jobs: 1, starting: 0, position: 3, reason: { code: "no_room", text: "" }, estimate: { refused_by: [] }, ...more }) as unknown as JobPreview;
const start = { p10_at: "2026-11-21T14:42:00Z", p50_at: "2026-11-21T14:52:00Z", p90_at: "2026-11-21T15:12:00Z" } as ExpectedStart;

it("says whether it starts, and when as soon as that is known", () => {
  expect(verdictOf(said({ verdict: "now", starting: 1 }), null, now)).toEqual({ tone: "good", title: "Starts in the next round" });
  expect(verdictOf(said({ verdict: "now", jobs: 1_200, starting: 4 }), null, now).title).toBe("4 of 1,200 start in the next round");
  expect(verdictOf(said({}), null, now)).toEqual({ tone: "warn", title: "It will wait, as number 3 of the queue" });
  expect(verdictOf(said({ position: null }), null, now).title).toBe("It will wait");
  expect(verdictOf(said({}), start, now).title).toBe("Starts in 10\u2009min to 40\u2009min");
  expect(verdictOf(said({ verdict: "never" }), null, now)).toEqual({ tone: "bad", title: "It could never start here" });
});

it("counts the limits that refuse it", () => {
  const refused = (limits: string[]) => said({ verdict: "never", reason: { code: "refused", text: "" }, estimate: { refused_by: limits } as unknown as JobPreview["estimate"] });
  expect(verdictOf(refused(["a"]), null, now)).toEqual({ tone: "bad", title: "A limit refuses it now" });
  expect(verdictOf(refused(["a", "b"]), null, now).title).toBe("Two limits refuse it now");
});

it("names the discount, whose it is, and of how many jobs each amount is", () => {
  expect(costBasis({ jobs: 1, discount: null })).toBe("at today's prices, without a discount");
  expect(costBasis({ jobs: 3, discount: { percent: "12.5", project: "lab", name: "Lab" } })).toBe("each of 3 jobs, at today's prices, less 12.5\u2009% discount of project Lab");
});
