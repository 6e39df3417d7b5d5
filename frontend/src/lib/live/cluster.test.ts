// @vitest-environment jsdom
import { afterEach, expect, it } from "vitest";
import { url } from "../../api/client";
import { chooseCluster, followsCluster, isOfCluster } from "./cluster";

afterEach(() => chooseCluster(null));

it("is named where the API has something of each cluster", () => {
  for (const path of ["nodes", "nodes/a", "nodes/a/drain", "policy", "policy/history", "partitions/day", "windows", "shares/history", "rounds/7/replay", "rollouts", "rollouts/proposal", "rollouts/1-2/promote", "projects/vision/what-if"]) {
    expect([path, isOfCluster(path)]).toEqual([path, true]);
  }
  for (const path of ["jobs", "policies", "windows/3", "rollouts/1-2", "rollouts/1-2/keep", "replays/1", "projects", "projects/vision", "session", "live/cluster"]) {
    expect([path, isOfCluster(path)]).toEqual([path, false]);
  }
});

it("is added to what is asked once one is chosen", () => {
  expect(url("nodes")).toBe("/api/v1/nodes");
  chooseCluster("lab");
  expect(url("nodes")).toBe("/api/v1/nodes?cluster=lab");
  expect(url("history", { minutes: 5 })).toBe("/api/v1/history?minutes=5&cluster=lab");
  expect(url("jobs", { cluster: "other" })).toBe("/api/v1/jobs?cluster=other");
  expect(localStorage.getItem("evenkeel-cluster")).toBe("lab");
});

it("is followed by the pages of a cluster", () => {
  for (const path of ["/", "/cluster", "/cluster/nodes/a", "/shares", "/fairness", "/policy", "/lab", "/lab/rounds"]) expect(followsCluster(path)).toBe(true);
  for (const path of ["/jobs", "/jobs/3", "/projects", "/submit", "/admin/rates"]) expect(followsCluster(path)).toBe(false);
});
