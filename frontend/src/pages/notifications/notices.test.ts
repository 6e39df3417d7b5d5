import { expect, test } from "vitest";
import type { Destination, NoticeDelivery } from "../../api/types";
import { THIN } from "../../lib/format";
import { healthOf, noticeSentence, offeredKinds, scopeOf, statusOf, testResult } from "./notices";

const now = new Date("2026-11-22T12:00:00Z");
const row = (more: Partial<Destination> = {}) =>
  ({ name: "ends", enabled: true, disabled_why: "", failing_since: null, failures: 0, delivered_at: null, own_jobs: true, project: null, ...more }) as Destination;
const line = (more: Partial<NoticeDelivery> = {}) => ({ status: "delivered", attempts: 1, answer_code: 200, answer: "", error: "", ...more }) as NoticeDelivery;
const said = (rows: Destination[]) => noticeSentence(rows, true).map((part) => part.text).join("");

test("the page opens with what does not work", () => {
  const off = row({ name: "chat", enabled: false, disabled_why: "It answered 410: it wants no more." });
  const failing = row({ name: "ci", failing_since: "2026-11-22T10:00:00Z" });
  expect(said([row(), failing, off])).toContain("chat was turned off");
  expect(said([row(), failing])).toContain("ci does not answer");
  expect(said([row(), row({ enabled: false })])).toBe("You get notices in 1 place of what happens to your jobs: ends.");
  expect(said([])).toContain("You get no notices yet");
});

test("the state of a destination has a word and says why", () => {
  expect(healthOf(row(), now).word).toBe("not used yet");
  expect(healthOf(row({ delivered_at: "2026-11-22T11:00:00Z" }), now).word).toBe("working");
  const failing = healthOf(row({ failing_since: "2026-11-22T10:00:00Z", failures: 3 }), now);
  expect([failing.word, failing.why]).toEqual(["failing", `since 2${THIN}h, 3 attempts`]);
  expect(healthOf(row({ enabled: false, disabled_why: "Gone." }), now)).toEqual({ word: "off", chip: "chip bad", why: "Gone." });
});

test("lost nodes are for administrators", () => {
  expect(offeredKinds(true)).toContain("node.lost");
  expect(offeredKinds(false)).not.toContain("node.lost");
});

test("whose jobs it tells of", () => {
  expect(scopeOf(row())).toBe("your jobs");
  expect(scopeOf(row({ project: "vision" }))).toBe("your jobs in vision");
  expect(scopeOf(row({ own_jobs: false, project: "vision" }))).toBe("all jobs of vision");
});

test("a test says what came back", () => {
  expect(testResult(line({ answer: "ok" }))).toBe("It answered 200. It said: ok");
  expect(testResult(line({ answer_code: null }))).toContain("mailbox");
  expect(testResult(line({ status: "given_up", answer_code: 500, answer: "no", error: "It answered 500." }))).toBe("It answered 500. It said: no");
});

test("a delivery that failed and comes again says so", () => {
  expect(statusOf(line({ status: "waiting", attempts: 0 })).word).toBe("waits");
  expect(statusOf(line({ status: "waiting", attempts: 2 })).word).toBe("to be tried again");
  expect(statusOf(line({ status: "given_up" })).word).toBe("given up");
});
