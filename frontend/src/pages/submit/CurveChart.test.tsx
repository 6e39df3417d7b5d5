import { expect, it } from "vitest";
import { isClear } from "./CurveChart";

it("keeps a word off the names at the ends of curves", () => {
  const end = { x: 100, y: 50 };
  expect(isClear({ x: 130, y: 52 }, [end])).toBe(false);
  expect(isClear({ x: 90, y: 40 }, [end])).toBe(false);
  expect(isClear({ x: 130, y: 80 }, [end])).toBe(true);
  expect(isClear({ x: 60, y: 50 }, [end])).toBe(true);
  expect(isClear({ x: 60, y: 50 }, [])).toBe(true);
});
