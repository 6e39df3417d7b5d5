import { describe, expect, it } from "vitest";
import type { JobDetail, ModelType, Session, TemplateSummary } from "../../api/types";
import { draftOf, examplesOf, fileOfJob, grouped, sharers } from "./templates";

const session = { projects: [{ key: "vision", name: "Vision", role: "member" }, { key: "speech", name: "Speech", role: "viewer" }] } as unknown as Session;
const template = (name: string, project: string | null) => ({ name, project }) as unknown as TemplateSummary;

describe("what a job can begin with", () => {
  it("is an example of each program", () => {
    const [one] = examplesOf([{ name: "tiny", title: "Tiny", default_batch_size: 64 } as unknown as ModelType], "vision");
    expect(one?.file).toEqual({ name: "tiny", project: "vision", model_type: "tiny", total_steps: 2000, batch_size: 64, gpus: { min: 1, max: 4 } });
  });

  it("is a job's file without what was that job's alone", () => {
    const spec = { command: "train", total_steps: 5, array: { indices: "3" }, resume_from: { job: 1 }, dependencies: [], deadline: "2026-01-01" };
    expect(fileOfJob({ spec } as unknown as JobDetail)).toEqual({ command: "train", total_steps: 5 });
  });

  it("keeps the draft's project where a template leaves it open", () => {
    expect(draftOf({ total_steps: 1 }, "vision")).toEqual({ project: "vision", total_steps: 1 });
    expect(draftOf({ project: "speech" }, "vision")).toEqual({ project: "speech" });
    expect(draftOf({ total_steps: 1 }, undefined)).toEqual({ total_steps: 1 });
  });

  it("lists one's own first, then by project, and shares where one is a member", () => {
    const groups = grouped([template("b", "vision"), template("a", null), template("c", "gone")], session);
    expect(groups.map((group) => [group.label, group.templates.map((one) => one.name)])).toEqual([["Yours", ["a"]], ["Of gone", ["c"]], ["Of Vision", ["b"]]]);
    expect(sharers(session).map((project) => project.key)).toEqual(["vision"]);
    expect(grouped([], session)).toEqual([]);
  });
});
