import { expect, it } from "vitest";
import type { Project, Qos } from "../../api/types";
import { levelsOf } from "./levels";

const level = (name: string, more: Partial<Qos>) => ({ name, for_everybody: false, projects: [], ...more }) as unknown as Qos;
const project = (key: string, parent: string | null) => ({ key, parent }) as unknown as Project;

it("offers the levels that the project may ask for", () => {
  const levels = [level("normal", { for_everybody: true }), level("high", { projects: ["lab"] }), level("other", { projects: ["law"] })];
  const projects = [project("lab", null), project("vision", "lab")];
  expect(levelsOf(levels, projects, "vision").map((one) => one.name)).toEqual(["normal", "high"]);
  expect(levelsOf(levels, projects, undefined).map((one) => one.name)).toEqual(["normal"]);
});
