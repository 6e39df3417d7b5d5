import { useQueryClient } from "@tanstack/react-query";
import { lazy, Suspense, useEffect, useRef } from "react";
import { Link, useParams } from "react-router";
import { useExplanation, useJob, useJobCost, useJobPriority, useJobTimeline } from "../../api/hooks";
import type { JobDetail } from "../../api/types";
import { ApiError } from "../../api/client";
import { Fault, Skeleton } from "../../components/Panel";
import { WhatIfPanel } from "../../components/WhatIfPanel";
import { useNow } from "../../lib/clock";
import { hasEnded } from "../../lib/job/jobState";
import { timesAfter } from "../../lib/job/jobView";
import { useLiveJobs } from "../../lib/live/liveContext";
import { TopBar } from "../../shell/TopBar";
import { CostCard } from "./CostCard";
import { Figures } from "./Figures";
import { ArtifactsCard } from "./ArtifactsCard";
import { DataCard } from "./DataCard";
import { EnvironmentCard } from "./EnvironmentCard";
import { Links } from "./Links";
import { Checkpoints, HeldNow, Runs } from "./SideCards";
import { JobHeader } from "./JobHeader";
import { LifePanel } from "./LifePanel";
import { LogsPanel } from "./LogsPanel";
import { PriorityCard } from "./PriorityCard";
import { SharingCard } from "./SharingCard";
import { WhyCard } from "./WhyCard";
import css from "./job.module.css";
import { isolated } from "../../lib/isolated";

const Charts = lazy(() => import("./Charts"));
const ResourceCharts = lazy(() => import("./ResourceCharts"));

export default function JobPage() {
  const { number = "" } = useParams();
  const query = useJob(number);
  const live = useLiveJobs().get(Number(number))?.full;
  const job = query.data && live && live.number === query.data.number ? { ...query.data, ...live, times: query.data.times } : query.data;
  const crumb = <><Link to="/jobs">Jobs</Link><i>/</i>{number}</>;
  return (
    <>
      <TopBar title={job ? `${job.number} ${isolated(job.name)}` : `Job ${number}`} crumb={crumb} />
      <div className="page">
        {query.error && <Missing error={query.error} query={query} number={number} />}
        {job ? <Body key={job.number} job={job} fetchedAt={query.dataUpdatedAt} /> : !query.error && <Loading />}
      </div>
    </>
  );
}

function Missing({ error, query, number }: { error: Error; query: Parameters<typeof Fault>[0]["query"]; number: string }) {
  if (error instanceof ApiError && error.status === 404) {
    return <h1 className="say"><b>There is no job {number}</b> that you may see. It may belong to another project. <Link className="link" to="/jobs">All your jobs</Link></h1>;
  }
  return <Fault what="The job" query={query} />;
}

function Loading() {
  return (
    <>
      <Skeleton height={56} />
      <Skeleton height={84} />
      <div className={`cols ${css.body}`}><Skeleton height={520} /><Skeleton height={520} /></div>
    </>
  );
}

/** What is fetched beside the live job is fetched again as soon as the job changes its state or its GPUs. */
function useFreshParts(number: string, condition: string): void {
  const client = useQueryClient();
  const seen = useRef(condition);
  useEffect(() => {
    if (seen.current === condition) return;
    seen.current = condition;
    void client.invalidateQueries({ queryKey: ["job", number] });
  }, [client, number, condition]);
}

function Body({ job: fetched, fetchedAt }: { job: JobDetail; fetchedAt: number }) {
  const number = String(fetched.number);
  const ended = hasEnded(fetched.state);
  const now = useNow();
  const job = { ...fetched, times: timesAfter(fetched, (now.getTime() - fetchedAt) / 1000) };
  useFreshParts(number, `${job.state}/${job.allocation?.epoch ?? ""}/${job.resizes}`);
  const timeline = useJobTimeline(number, ended);
  const explanation = useExplanation(number, ended);
  const priority = useJobPriority(number, job.state === "queued");
  const cost = useJobCost(number, ended);
  return (
    <>
      <JobHeader job={job} now={now} />
      <Figures cost={cost.data} job={job} now={now} />
      <div className={`cols ${css.body}`}>
        <div className={css.stack}>
          <LifePanel job={job} timeline={timeline} now={now} />
          <Suspense fallback={<div className={`cols ${css.charts}`}><Skeleton height={224} /><Skeleton height={224} /></div>}>
            <Charts job={job} timeline={timeline.data} />
            <ResourceCharts job={job} timeline={timeline.data} />
          </Suspense>
          <LogsPanel job={job} />
        </div>
        <div className={css.stack}>
          <WhyCard job={job} query={explanation} now={now} />
          <PriorityCard found={priority.data} />
          <SharingCard job={job} />
          {!ended && <WhatIfPanel of={job.number} />}
          <CostCard job={job} query={cost} />
          <Links job={job} />
          <Checkpoints job={job} />
          <ArtifactsCard job={job} />
          <EnvironmentCard job={job} />
          <DataCard job={job} />
          <Runs job={job} />
          <HeldNow job={job} />
        </div>
      </div>
    </>
  );
}
