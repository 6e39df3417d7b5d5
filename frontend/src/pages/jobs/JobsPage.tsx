import { useDebouncedValue } from "@mantine/hooks";
import { useEffect, useState } from "react";
import { Link, useSearchParams } from "react-router";
import { usePartitions } from "../../api/clusterHooks";
import { useArrays, useJobs, useProjects } from "../../api/hooks";
import { Loadable, Panel, Skeleton } from "../../components/Panel";
import { useNow } from "../../lib/clock";
import { JOB_STATES, STATE_ORDER, type JobState } from "../../lib/jobState";
import { TopBar } from "../../shell/TopBar";
import { ArrayPanel } from "./ArrayPanel";
import { ArrayRow } from "./ArrayRow";
import { JobRow } from "./JobRow";

const GROUPS: { key: string; label: string; states: JobState[] }[] = [
  { key: "", label: "All", states: [] },
  { key: "live", label: "Live", states: STATE_ORDER.filter((state) => !JOB_STATES[state].ended) },
  ...(["queued", "running", "succeeded", "failed", "cancelled"] as const).map((state) => ({ key: state, label: JOB_STATES[state].word, states: [state] as JobState[] })),
];

/** Filters live in the address, so that a list can be linked and Back works. */
function useFilters() {
  const [params, setParams] = useSearchParams();
  const set = (key: string, value: string) => {
    setParams((old) => {
      if (value) old.set(key, value);
      else old.delete(key);
      return old;
    }, { replace: true });
  };
  return { state: params.get("state") ?? "", search: params.get("search") ?? "", project: params.get("project") ?? "", array: params.get("array") ?? "", partition: params.get("partition") ?? "", set };
}

export default function JobsPage() {
  const filters = useFilters();
  const [typed, setTyped] = useState(filters.search);
  const [settled] = useDebouncedValue(typed, 250);
  const now = useNow(10_000);
  const projects = useProjects().data ?? [];
  const partitions = usePartitions().data ?? [];
  const group = GROUPS.find((entry) => entry.key === filters.state) ?? GROUPS[0]!;
  const narrowed = Boolean(filters.state || filters.search || filters.array || filters.partition);
  const query = useJobs({ state: group.states, search: filters.search, project: filters.project, array: filters.array, partition: filters.partition, ...(narrowed ? {} : { arrays: "first" as const }) });
  const folded = !narrowed && !query.isPlaceholderData;
  const arrays = useArrays(filters.project, folded && (query.data?.pages.some((page) => page.results.some((job) => job.array)) ?? false));
  useEffect(() => setTyped(filters.search), [filters.search]);
  useEffect(() => {
    if (settled !== filters.search && settled === typed) filters.set("search", settled.trim());
  });
  return (
    <>
      <TopBar title="Jobs" />
      <div className="page">
        <h1 className="vh">Jobs</h1>
        {filters.array && <ArrayPanel key={filters.array} number={filters.array} onClose={() => filters.set("array", "")} />}
        <Panel
          title="Jobs" meta={filters.array ? `of array ${filters.array}, newest first` : narrowed ? "newest first" : "newest first, an array as one"}
          right={
            <>
              {projects.length > 1 && (
                <select className="in" style={{ height: 28, fontSize: 12, width: "auto" }} aria-label="Project" value={filters.project} onChange={(event) => filters.set("project", event.target.value)}>
                  <option value="">All projects</option>
                  {projects.map((project) => <option key={project.key} value={project.key}>{project.name}</option>)}
                </select>
              )}
              {(partitions.length > 0 || filters.partition) && (
                <select className="in" style={{ height: 28, fontSize: 12, width: "auto" }} aria-label="Partition" value={filters.partition} onChange={(event) => filters.set("partition", event.target.value)}>
                  <option value="">All partitions</option>
                  {partitions.map((one) => <option key={one.name} value={one.name}>{one.name}</option>)}
                </select>
              )}
              <input className="in" style={{ height: 28, width: 170, fontSize: 12 }} type="search" placeholder="Name or number" aria-label="Name or number" value={typed} onChange={(event) => setTyped(event.target.value)} />
            </>
          }
        >
          <div className="pb" style={{ overflowX: "auto" }}>
            <div className="seg" role="group" aria-label="State">
              {GROUPS.map((entry) => <button key={entry.key} type="button" aria-pressed={entry === group} onClick={() => filters.set("state", entry.key)}>{entry.label}</button>)}
            </div>
          </div>
          <Loadable query={query} what="The list of jobs" skeleton={<Skeleton height={26} count={8} />}>
            {(data) => {
              const jobs = data.pages.flatMap((page) => page.results);
              return jobs.length === 0 ? <Empty filtered={Boolean(narrowed || filters.project)} /> : (
                <div className="tw">
                  <table className="t cards">
                    <thead>
                      <tr>
                        <th scope="col">Job</th><th scope="col">State</th><th scope="col">Project</th><th scope="col">Owner</th><th scope="col" className="ra">Progress</th><th scope="col">GPUs</th>
                        <th scope="col" className="ra">Submitted</th><th scope="col" className="ra">Ended</th><th scope="col" className="ra">Cost</th>
                      </tr>
                    </thead>
                    <tbody>
                      {jobs.map((job) => {
                        if (!folded || !job.array) return <JobRow key={job.id} job={job} now={now} />;
                        const { number } = job.array;
                        const listed = arrays.data?.results.find((one) => one.number === number);
                        return <ArrayRow key={job.id} first={job} place={job.array} listed={listed} alone={arrays.isSuccess && !listed} now={now} />;
                      })}
                    </tbody>
                  </table>
                </div>
              );
            }}
          </Loadable>
          {query.hasNextPage && (
            <button type="button" className="more" style={{ padding: 8, borderRadius: "0 0 8px 8px" }} disabled={query.isFetchingNextPage} onClick={() => void query.fetchNextPage()}>
              {query.isFetchingNextPage ? "Reading" : "Older jobs"}
            </button>
          )}
        </Panel>
      </div>
    </>
  );
}

function Empty({ filtered }: { filtered: boolean }) {
  return filtered ? <p className="empty">No job matches. <Link to="/jobs">Show all</Link></p> : <p className="empty">There are no jobs yet. <Link to="/submit">Submit a job</Link></p>;
}
