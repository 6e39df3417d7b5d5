import { useQueries } from "@tanstack/react-query";
import { hasEnded } from "../lib/job/jobState";
import { jobPart, jobWhole, metricsPart } from "./hooks";
import type { JobCost, JobDetail } from "./types";

/** Each job as its own page asks for it, so that what is known there is known here. */
export const useJobsNamed = (references: string[]) => useQueries({ queries: references.map((one) => jobWhole(one)) });
export const useCostsOf = (jobs: JobDetail[]) => useQueries({ queries: jobs.map((job) => jobPart<JobCost>("cost", String(job.number), hasEnded(job.state))) });
export const useMetricsOf = (jobs: JobDetail[]) => useQueries({ queries: jobs.map((job) => metricsPart(String(job.number), hasEnded(job.state))) });
