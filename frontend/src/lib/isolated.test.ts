import { expect, it } from "vitest";
import { isolated } from "./isolated";

it("keeps the direction of a name from what stands beside it", () => {
  expect(isolated("resnet 50")).toBe("resnet 50");
  expect(isolated("مرحبا")).toBe("\u2068مرحبا\u2069");
  expect(isolated("safe\u202egnp.exe")).toBe("\u2068safe\u202egnp.exe\u2069");
});
