import { expect, test } from "vitest";
import type { Factor } from "../../api/types";
import { heapOf, madeOf, partsOf, partsOfAll, takenOff } from "./priority";

const NAMES = ["age", "fair_share", "job_size", "partition", "qos", "assoc", "gpu", "v100", "k80"];
const factor = (name: string, points = 10, weight = 100): Factor => ({ name, weight, factor: points / 100, points });
const factors = NAMES.map((name) => factor(name));

test("every part has a fill of its own, and the same one whichever others count", () => {
  const fills = partsOf({ factors, site: 7 }).map((part) => part.fill);
  expect(new Set(fills).size).toBe(NAMES.length + 1);
  const fewer = factors.map((one) => (one.name === "age" ? { ...one, weight: 0, points: 0 } : one));
  const of = (list: Factor[], name: string) => partsOf({ factors: list, site: 0 }).find((part) => part.name === name)?.fill;
  for (const name of NAMES.slice(1)) expect(of(fewer, name)).toBe(of(factors, name));
});

test("what an administrator set is part of the heap, nice is taken off it", () => {
  const made = { factors: [factor("age", 40)], site: 700, nice: 20 };
  expect(heapOf(made)).toBe(740);
  expect(takenOff(made)).toBe(20);
  expect(madeOf(made)).toBe("waiting 40, set by an administrator 700, taken off 20");
});

test("a priority below 0 is taken off", () => {
  const made = { factors: [factor("age", 40)], site: -30, nice: 5 };
  expect([heapOf(made), takenOff(made)]).toEqual([40, 35]);
});

test("a legend names what any of the jobs has", () => {
  const rows = [{ factors: [factor("age")], site: 0, nice: 0 }, { factors: [factor("age")], site: 5, nice: 0 }];
  expect(partsOfAll(rows).map((part) => part.word)).toEqual(["waiting", "set by an administrator"]);
});
