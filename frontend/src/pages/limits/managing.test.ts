import { expect, test } from "vitest";
import { mayGuarantee, mayLimit } from "./managing";

const projects = [
  { key: "org", parent: null, role: "viewer" as const },
  { key: "vision", parent: "org", role: "manager" as const },
  { key: "cv", parent: "vision", role: "manager" as const },
  { key: "lidar", parent: "cv", role: "manager" as const },
  { key: "apart", parent: "unseen", role: "manager" as const },
];

test("managers limit what is right below a project of theirs", () => {
  expect(projects.filter((one) => mayLimit(one.key, projects)).map((one) => one.key)).toEqual(["cv", "lidar"]);
});

test("managers divide only what is guaranteed to a project above that they manage", () => {
  const may = (...guaranteed: string[]) => projects.filter((one) => mayGuarantee(one.key, projects, new Set(guaranteed))).map((one) => one.key);
  expect(may("vision")).toEqual(["cv", "lidar"]);
  expect(may("cv")).toEqual(["lidar"]);
  expect(may("org", "apart")).toEqual([]);
});
