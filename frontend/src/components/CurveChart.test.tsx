import { expect, it } from "vitest";
import { isClear, nameAt } from "./CurveChart";

it("keeps a word off the names at the ends of curves", () => {
  const end = { x: 100, y: 50 };
  expect(isClear({ x: 130, y: 52 }, [end])).toBe(false);
  expect(isClear({ x: 90, y: 40 }, [end])).toBe(false);
  expect(isClear({ x: 130, y: 80 }, [end])).toBe(true);
  expect(isClear({ x: 60, y: 50 }, [end])).toBe(true);
  expect(isClear({ x: 60, y: 50 }, [])).toBe(true);
});

it("writes a long name above the end of its curve, inside the chart", () => {
  expect(nameAt({ x: 340, y: 50 }, "H200", 400)).toEqual({ x: 348, y: 54, anchor: "start" });
  expect(nameAt({ x: 340, y: 50 }, "Nvidia GH200 Grace Hopper Superchip", 400)).toEqual({ x: 400, y: 40, anchor: "end" });
});
