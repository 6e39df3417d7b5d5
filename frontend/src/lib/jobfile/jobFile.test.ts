import { describe, expect, it } from "vitest";
import { besideGpus, dataOf, gpusOf, halfOf, parseData, parseDependencies, parsePairs, parseYaml, partAsked, readPath, showData, showDependencies, showPairs, toYaml, wholeOf, writePath } from "./jobFile";

describe("a job file", () => {
  it("goes through YAML and back unchanged", () => {
    const file = { name: "a", total_steps: 4000, gpus: { min: 1, max: 4 }, labels: { seed: "7", on: "yes" }, env: { A: "multi word: text" } };
    expect(parseYaml(toYaml(file)).file).toEqual(file);
  });

  it("is written in the order people read it", () => expect(toYaml({ gpus: { min: 1 }, name: "a", project: "p" })).toBe("name: a\nproject: p\ngpus:\n  min: 1\n"));

  it("loses a group with its last key", () => {
    expect(writePath({ name: "a", checkpoint: { every_steps: 5 } }, "checkpoint.every_steps", undefined)).toEqual({ name: "a" });
    expect(readPath(writePath({}, "gpus.min", 2), "gpus.min")).toBe(2);
  });
});

it("says what a job asks for of its nodes beside GPUs", () => {
  expect([{}, { cpus: null, memory: null }, { cpus: 1 }, { cpus: 4, memory: 16384 }].map(besideGpus)).toEqual(["", "", "1 processor", "4 processors and 16\u2009GiB"]);
});

describe("GPUs of a job file", () => {
  const read = (text: string) => gpusOf(parseYaml(text).file ?? {});

  it("are read from their shorthands too", () => {
    expect(read("gpus: 0.5\n")).toEqual({ share: 0.5 });
    expect(read("gpus: 2\n")).toEqual({ min: 2, max: 2 });
    expect(read("gpus: {min: 1, max: 4}\n")).toEqual({ min: 1, max: 4 });
    expect([read("name: a\n"), read("gpus:\n"), read("gpus: [1]\n")]).toEqual([{}, {}, {}]);
  });

  it("are a part of one where they have a share below all of it", () => {
    expect([{ share: 0.29 }, { share: 0.5, memory: "6GiB" }].map(partAsked)).toEqual([29, 50]);
    expect([{}, { min: 2 }, { share: null }, { share: 1 }].map(partAsked)).toEqual([null, null, null, null]);
    expect(partAsked({ share: "half" })).toBe("half");
  });

  it("keep their types when they change from whole ones to a part and back", () => {
    const part = halfOf({ min: 1, max: 4, types: ["k1"] });
    expect(part).toEqual({ types: ["k1"], share: 0.5 });
    expect(wholeOf({ ...part, memory: "6GiB" })).toEqual({ types: ["k1"] });
  });
});

describe("places of errors", () => {
  const text = "name: a\ngpus:\n  min: 1\n  max: 9\nlabels:\n  seed: '7'\n";
  it("finds the line of a field", () => expect(parseYaml(text).lineOf("gpus.max")).toBe(4));
  it("falls back to the group of a field that is not there", () => expect(parseYaml(text).lineOf("gpus.types.0")).toBe(2));
  it("finds the line of GPUs in short", () => expect(parseYaml("name: a\ngpus: 0.5\n").lineOf("gpus.share")).toBe(2));
  it("knows no line for a field that is missing", () => expect(parseYaml(text).lineOf("total_steps")).toBeNull());
  it("names the line that cannot be read", () => {
    const { file, problems } = parseYaml("name: a\nbad: [1, 2\nx: 1\n");
    expect(file).toBeNull();
    expect(problems[0]?.line).toBeGreaterThanOrEqual(2);
  });
  it("refuses what is no mapping", () => expect(parseYaml("- 1\n- 2\n").problems).toHaveLength(1));
});

it("reads pairs", () => {
  expect(parsePairs("exp=cosine, seed=7", /,/)).toEqual({ exp: "cosine", seed: "7" });
  expect(showPairs({ a: "1", b: "x=y" }, ", ")).toBe("a=1, b=x=y");
});

it("reads and shows dependencies as people write them", () => {
  const file = [{ type: "afterok", job: 12 }, { type: "afterok", job: "18_3" }, { type: "singleton" }];
  expect(parseDependencies("afterok:12,18_3 singleton")).toEqual(file);
  expect(parseDependencies("afterok:12:18_3,singleton")).toEqual(file);
  expect(parseDependencies("12")).toEqual([{ type: "afterok", job: 12 }]);
  expect(parseDependencies("afterany singleton")).toEqual([{ type: "afterany" }, { type: "singleton" }]);
  expect(parseDependencies(" ")).toBeUndefined();
  expect(showDependencies(file)).toBe("afterok:12,18_3 singleton");
  expect(showDependencies(undefined)).toBe("");
});

describe("aliases", () => {
  it("says where one holds itself", () => {
    const { file, problems } = parseYaml("a: &x {b: *x}\n");
    expect(file).toBeNull();
    expect(problems[0]?.message).toContain("alias");
  });
  it("reads one that does not", () => expect(parseYaml("a: &x [1]\nb: *x\n").file).toEqual({ a: [1], b: [1] }));
});

describe("data of a job file", () => {
  const file = [{ name: "images", url: "s3://datasets/images", secret: "STORE" }, { name: "labels", path: "/shared/labels", read_only: false }];

  it("is a line each, and what a line does not say stays", () => {
    expect(showData(file)).toBe("images=s3://datasets/images\nlabels=/shared/labels");
    expect(parseData(showData(file), file)).toEqual(file);
    expect(parseData("images=s3://other/images\n\nnew = /a=b\n", file)).toEqual([{ name: "images", url: "s3://other/images", secret: "STORE" }, { name: "new", path: "/a=b" }]);
  });

  it("is none where nothing is named, and left to the portal where it is something else", () => {
    expect(parseData("\n", file)).toBeUndefined();
    expect([dataOf(undefined), dataOf("x"), dataOf([1, { path: "/a" }])]).toEqual([[], [], [{ name: "", path: "/a" }]]);
    expect(parseData("images", undefined)).toEqual([{ name: "images", path: "" }]);
  });
});
