import { useCallback, useMemo } from "react";
import { Link, useSearchParams } from "react-router";
import { url } from "../../api/client";
import { useArrays, useSession } from "../../api/hooks";
import { useJobs } from "../../api/jobListHooks";
import type { Job, JobColumn } from "../../api/types";
import { Icon } from "../../components/icons";
import { Loadable, Panel, Skeleton } from "../../components/Panel";
import { useNow } from "../../lib/clock";
import { count, inWords } from "../../lib/format";
import { columnsOf, withCluster } from "../../lib/job/jobColumns";
import { focusedRow, useKeys } from "../../lib/keys";
import { useLiveJobs, type JobView } from "../../lib/live/liveContext";
import { setPreferences, usePreferences } from "../../lib/preferences";
import { TopBar } from "../../shell/TopBar";
import { isNarrowed, NEWEST_FIRST, paramsOf, queryOf, readFilters, type JobFilters } from "./jobFilters";
import { ArrayPanel } from "./ArrayPanel";
import { BulkBar } from "./BulkBar";
import { ColumnsMenu } from "./ColumnsMenu";
import { FilterBar } from "./FilterBar";
import { JobTable } from "./JobTable";
import { useSelection } from "./useSelection";
import { ViewTabs } from "./ViewTabs";

/** Then scrolling reads no further by itself: whoever wants them all narrows the list, or takes the CSV. */
const MOST_BY_SCROLLING = 5000;
const NO_JOBS: Job[] = [];

/** Filters and columns live in the address, so that a list can be linked and Back works. */
function useAddress() {
  const [params, setParams] = useSearchParams();
  const { jobColumns } = usePreferences();
  const clusters = useSession().data?.clusters.length ?? 1;
  const own = columnsOf(params.get("columns"));
  const text = params.toString();
  const filters = useMemo(() => readFilters(new URLSearchParams(text)), [text]);
  const change = (changes: Partial<JobFilters>) => setParams((old) => paramsOf({ ...readFilters(old), ...changes }, columnsOf(old.get("columns"))), { replace: true });
  const setColumns = (columns: JobColumn[]) => {
    setPreferences({ jobColumns: columns });
    if (own) setParams((old) => paramsOf(readFilters(old), columns), { replace: true });
  };
  return { params, filters, columns: own ?? withCluster(jobColumns, clusters), change, setColumns, show: (next: URLSearchParams) => setParams(next) };
}

/** Rows as the stream has them by now; one that did not change is the same object. */
function useRows(pages: { results: Job[] }[] | undefined, live: Map<number, JobView>): Job[] {
  return useMemo(() => pages?.flatMap((page) => page.results.map((job) => live.get(job.number)?.full ?? job)) ?? NO_JOBS, [pages, live]);
}

export default function JobsPage() {
  const { params, filters, columns, change, setColumns, show } = useAddress();
  const session = useSession().data;
  const live = useLiveJobs();
  const now = useNow(10_000);
  const narrowed = isNarrowed(filters);
  const asked = queryOf(filters);
  const query = useJobs({ ...asked, ...(narrowed ? {} : { arrays: "first" }) });
  const jobs = useRows(query.data?.pages, live);
  const folded = !narrowed && !query.isPlaceholderData;
  const arrays = useArrays(filters.project, folded && jobs.some((job) => job.array));
  const single = useMemo(() => (folded ? jobs.filter((job) => !job.array) : jobs), [folded, jobs]);
  const selection = useSelection(single, paramsOf(filters).toString());
  useKeys({ x: () => { const number = focusedRow()?.dataset.number; if (number) selection.toggle(Number(number)); } });
  const { fetchNextPage, isFetchingNextPage, hasNextPage } = query;
  const readMore = useCallback(() => { if (!isFetchingNextPage) void fetchNextPage(); }, [fetchNextPage, isFetchingNextPage]);
  const scrolls = hasNextPage && jobs.length < MOST_BY_SCROLLING && !query.isError;
  return (
    <>
      <TopBar title="Jobs" />
      <div className="page">
        <Sentence live={live} />
        {filters.array && <ArrayPanel key={filters.array} number={filters.array} onClose={() => change({ array: "" })} />}
        <Panel
          title="Jobs" meta={`${filters.array ? `of array ${filters.array}, ` : ""}${filters.ordering === NEWEST_FIRST ? "newest first" : "oldest first"}${narrowed ? "" : ", an array as one"}`}
          right={
            <>
              <a className="btn sm" href={url("jobs/export", asked)} download><Icon name="download" size={14} />CSV</a>
              <ColumnsMenu columns={columns} onChange={setColumns} />
            </>
          }
        >
          <ViewTabs params={params} filters={filters} columns={columns} onState={(state) => change({ state })} onView={show} />
          <FilterBar filters={filters} onChange={change} />
          <Loadable query={query} what="The list of jobs" skeleton={<Skeleton height={26} count={8} />}>
            {() => jobs.length === 0 ? <Empty filtered={narrowed || filters.project !== ""} /> : (
              <JobTable jobs={jobs} folded={folded} arrays={arrays.data?.results} columns={columns} now={now} selection={selection} more={scrolls} readMore={readMore} />
            )}
          </Loadable>
          {hasNextPage && (
            <button type="button" className="more" style={{ padding: 8, borderRadius: "0 0 8px 8px" }} disabled={isFetchingNextPage} onClick={() => void fetchNextPage()}>
              {isFetchingNextPage ? "Reading" : filters.ordering === NEWEST_FIRST ? "Older jobs" : "Newer jobs"}
            </button>
          )}
        </Panel>
        <BulkBar jobs={selection.jobs} session={session} onClear={selection.clear} />
      </div>
    </>
  );
}

/** What the reader's projects do now, whatever is listed. */
function Sentence({ live }: { live: Map<number, JobView> }) {
  const states = [...live.values()].filter((job) => job.full).map((job) => job.state);
  const waiting = states.filter((state) => state === "queued").length;
  const running = states.filter((state) => state === "running" || state === "starting" || state === "rescaling").length;
  const waits = waiting === 0 ? "none waits" : `${inWords(waiting)} ${waiting === 1 ? "waits" : "wait"}`;
  if (running === 0 && waiting === 0) return <h1 className="say"><b>Nothing runs or waits</b> in your projects.</h1>;
  return <h1 className="say"><b>{count(running, "job")} of your projects {running === 1 ? "runs" : "run"}</b>, {waits}.</h1>;
}

function Empty({ filtered }: { filtered: boolean }) {
  return filtered ? <p className="empty">No job matches. <Link to="/jobs">Show all</Link></p> : <p className="empty">There are no jobs yet. <Link to="/submit">Submit a job</Link></p>;
}
