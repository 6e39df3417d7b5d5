import { expect, it } from "vitest";
import type { ClusterNode, NodeCheck } from "../../api/types";
import { checkSentence, inOrder, nodesToCheck } from "./nodeChecks";

const now = new Date(2026, 10, 22, 12, 0);
const none = { state: null, open: null, last: null, failures: 0, next_at: null, waived_at: null, waived_by: null };
const at = (minutes: number) => new Date(now.getTime() + minutes * 60_000).toISOString();
const ended = (changes: object = {}) => ({ cause: "joined", asked_by: null, begun_at: at(-3), ended_at: at(-3), passed: true, items: [], ...changes });
const said = (changes: object) => checkSentence({ ...none, ...changes } as ClusterNode["check"], now).replaceAll(/[\u2009\u00a0]/g, " ");

it("says what the last check found, why it was made and what follows", () => {
  expect(said({})).toBe("It was never checked.");
  expect(said({ last: ended() })).toBe("Passed 3 min ago (it joined).");
  expect(said({ last: ended({ passed: false, cause: "asked", asked_by: "root@example.org" }), failures: 2, next_at: at(4) })).toBe("Failed 3 min ago (asked for by root@example.org); 2 failures in a row; repeated in 4 min.");
  expect(said({ open: ended({ begun_at: null, ended_at: null }) })).toBe("One is awaited (it joined).");
  expect(said({ open: ended({ ended_at: null, cause: "faults" }) })).toBe("One is under way (runs failed on it).");
});

it("lists what failed first", () => {
  const item = (subject: string, result: string) => ({ subject, result, seen: "", fix: "" });
  expect(inOrder([item("a", "passed"), item("b", "unknown"), item("c", "failed")] as NodeCheck["items"]).map((one) => one.subject)).toEqual(["c", "b", "a"]);
});

it("shows nodes that are kept from work, are examined or were waived, and no others", () => {
  const node = (name: string, changes: object = {}) => ({ name, check: { ...none, ...changes } });
  const nodes = [node("n1", { last: ended() }), node("n2", { waived_at: at(0) }), node("n3", { state: "checking" }), node("n10", { state: "failed" }), node("n4", { state: "failed" })];
  expect(nodesToCheck(nodes as ClusterNode[]).map((one) => one.name)).toEqual(["n4", "n10", "n3", "n2"]);
});
