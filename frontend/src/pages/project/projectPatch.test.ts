import { expect, test } from "vitest";
import { patchOf, settingsOf } from "./projectPatch";

const project = { name: "Vision", share_weight: 2, inner_rule: "fairness" as const, priority: null, cluster_shares: { lab: 3 }, slurm: { account: "vision", qos: null, partition: null, wckey: null, reservation: null } };

test("what was not changed is not sent", () => {
  expect(patchOf(project, settingsOf(project))).toEqual({});
});

test("only what was changed is sent", () => {
  expect(patchOf(project, { ...settingsOf(project), name: " Seeing " })).toEqual({ name: "Seeing" });
  expect(patchOf(project, { ...settingsOf(project), weight: "0.5", rule: "fifo" })).toEqual({ share_weight: 0.5, inner_rule: "fifo" });
});

test("an empty priority is that of the project above", () => {
  expect(patchOf(project, { ...settingsOf(project), priority: "0" })).toEqual({ priority: 0 });
  expect(patchOf({ ...project, priority: 7 }, { ...settingsOf(project), priority: " " })).toEqual({ priority: null });
});

test("a weight on a cluster is set by itself, and an empty one taken back", () => {
  expect(patchOf(project, { ...settingsOf(project), shares: { lab: "3", a100s: "0.5", h100s: "" } })).toEqual({ cluster_shares: { a100s: 0.5 } });
  expect(patchOf(project, { ...settingsOf(project), shares: { lab: " " } })).toEqual({ cluster_shares: { lab: null } });
});

test("of what it is in Slurm the changed names are sent, and an empty one is as above", () => {
  const { slurm } = settingsOf(project);
  expect(patchOf(project, { ...settingsOf(project), slurm: { ...slurm, account: " ", qos: " high " } })).toEqual({ slurm: { account: null, qos: "high" } });
});
