import { expect, test } from "vitest";
import { anchored } from "./bars";

test("labels at the ends of an axis are anchored there, so that none is cut", () => {
  expect(anchored(300, 58, 600, "00:11:00")).toEqual({ x: 300, textAnchor: "middle" });
  expect(anchored(590, 58, 600, "00:11:00")).toEqual({ x: 600, textAnchor: "end" });
  expect(anchored(60, 58, 600, "00:11:00")).toEqual({ x: 58, textAnchor: "start" });
});
