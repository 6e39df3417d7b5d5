import { expect, test } from "vitest";
import { stateOf } from "./invitation";

const now = new Date("2026-11-21T12:00:00Z");
const invitation = (changes: object = {}) => ({ accepted_at: null, revoked_at: null, expires_at: "2026-11-22T12:00:00Z", ...changes });

test("an invitation is open until it ends, is accepted or withdrawn", () => {
  expect(stateOf(invitation(), now)).toBe("open");
  expect(stateOf(invitation({ expires_at: "2026-11-21T12:00:00Z" }), now)).toBe("ended");
  expect(stateOf(invitation({ accepted_at: "2026-11-20T12:00:00Z", expires_at: "2026-11-20T13:00:00Z" }), now)).toBe("accepted");
  expect(stateOf(invitation({ revoked_at: "2026-11-20T12:00:00Z" }), now)).toBe("withdrawn");
});
