import { expect, it } from "vitest";
import { switchHint } from "./IdleRuleForm";

it("says what the switch does as it stands", () => {
  expect(switchHint({ enabled: false, release_after_s: "120" })).toBe("Off: idle jobs are neither warned nor suspended.");
  expect(switchHint({ enabled: true, release_after_s: "120" })).toBe("On: idle jobs are warned, and suspended later.");
  expect(switchHint({ enabled: true, release_after_s: " " })).toBe("On: idle jobs are warned, and none is suspended.");
});
