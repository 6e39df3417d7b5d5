import type { JobDetail, ModelType, Session, TemplateSummary } from "../../api/types";
import type { JobFile } from "./jobFile";

export interface Example {
  name: string;
  title: string;
  file: JobFile;
}

/** A small job of each program of the catalogue. */
export function examplesOf(models: ModelType[], project: string | undefined): Example[] {
  return models.map((model) => ({
    name: model.name,
    title: model.title,
    file: { name: model.name, ...(project ? { project } : {}), model_type: model.name, total_steps: 2000, batch_size: model.default_batch_size, gpus: { min: 1, max: 4 } },
  }));
}

/** What belongs to the one job and not to others like it. */
const OF_THE_JOB = ["array", "dependencies", "deadline", "resume_from"];

/** A job's file as something to begin with. */
export function fileOfJob(job: Pick<JobDetail, "spec">): JobFile {
  return Object.fromEntries(Object.entries(job.spec as JobFile).filter(([key]) => !OF_THE_JOB.includes(key)));
}

/** A template as a draft: where it leaves the project open, that of the draft. */
export function draftOf(file: JobFile, project: unknown): JobFile {
  return "project" in file || project === undefined ? file : { project, ...file };
}

/** Projects with which one may share. */
export function sharers(session: Session | undefined): Session["projects"] {
  return (session?.projects ?? []).filter((project) => project.role !== "viewer");
}

export interface TemplateGroup {
  label: string;
  templates: TemplateSummary[];
}

/** One's own first, then by project. */
export function grouped(templates: TemplateSummary[], session: Session | undefined): TemplateGroup[] {
  const own = templates.filter((one) => one.project === null);
  const keys = [...new Set(templates.flatMap((one) => (one.project === null ? [] : [one.project])))].sort();
  const name = (key: string) => session?.projects.find((project) => project.key === key)?.name ?? key;
  return [
    ...(own.length > 0 ? [{ label: "Yours", templates: own }] : []),
    ...keys.map((key) => ({ label: `Of ${name(key)}`, templates: templates.filter((one) => one.project === key) })),
  ];
}
