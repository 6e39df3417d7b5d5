import { expect, test } from "vitest";
import { problemsOf } from "./problem";

const refusal = (...errors: { field: string; message: string }[]) => ({ message: "key is taken", errors });

test("what was said of a field stands at the field", () => {
  expect(problemsOf(refusal({ field: "key", message: "is taken" }), ["key", "name"])).toEqual({ at: { key: "is taken" }, rest: null });
});

test("the first thing that was said of a field counts", () => {
  expect(problemsOf(refusal({ field: "key", message: "is taken" }, { field: "key", message: "is long" }), ["key"]).at).toEqual({ key: "is taken" });
});

test("what no field of the form can show stands below it", () => {
  expect(problemsOf(refusal({ field: "parent", message: "is archived" }), ["key"]).rest).toBe("key is taken");
  expect(problemsOf(refusal(), ["key"]).rest).toBe("key is taken");
  expect(problemsOf(new Error("The portal cannot be reached."), ["key"]).rest).toBe("The portal cannot be reached.");
});

test("nothing is said where nothing was refused", () => {
  expect(problemsOf(null, ["key"])).toEqual({ at: {}, rest: null });
});
