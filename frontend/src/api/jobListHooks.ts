import { keepPreviousData, useInfiniteQuery, useMutation, useQuery, useQueryClient, type InfiniteData } from "@tanstack/react-query";
import { get, request, send, url, type Query } from "./client";
import type { BulkAction, BulkAnswer, Job, JobColumn, Page, SavedView } from "./types";

const PAGE_ROWS = 100;
/** More pages than these are not read again and again: what changes of live jobs comes by the stream. */
const FRESH_PAGES = 3;
const FRESH_MS = 15_000;

/** The list of jobs, page after page as one scrolls. */
export function useJobs(query: Query) {
  return useInfiniteQuery({
    queryKey: ["jobs", query],
    initialPageParam: url("jobs", { ...query, limit: PAGE_ROWS }),
    queryFn: ({ pageParam, signal }) => request<Page<Job>>(pageParam, { signal }),
    getNextPageParam: (page) => page.next ?? undefined,
    placeholderData: keepPreviousData,
    refetchInterval: (found) => ((found.state.data?.pages.length ?? 0) > FRESH_PAGES ? false : FRESH_MS),
  });
}

export interface BulkWish {
  action: BulkAction;
  ids: number[];
  labels?: Record<string, string | null>;
  /** Sending it twice makes no second job. */
  key: string;
}

export function useBulk() {
  const client = useQueryClient();
  return useMutation({
    mutationFn: ({ key, ...body }: BulkWish) => send<BulkAnswer>("POST", "jobs/bulk", body, { "Idempotency-Key": key }),
    onSuccess: () => {
      // One page after the other is read again: nobody waits for that, nor for more than the first of them.
      client.setQueriesData<InfiniteData<Page<Job>>>({ queryKey: ["jobs"] }, (known) => known && { pages: known.pages.slice(0, FRESH_PAGES), pageParams: known.pageParams.slice(0, FRESH_PAGES) });
      void client.invalidateQueries({ queryKey: ["jobs"] });
    },
  });
}

export const useViews = () => useQuery({ queryKey: ["views"], queryFn: ({ signal }) => get<Page<SavedView>>("views", { limit: 200 }, signal), staleTime: 60_000 });

export interface ViewWish {
  name: string;
  filters: Record<string, unknown>;
  ordering: string;
  columns: JobColumn[];
}

function useViewChange<T, R>(change: (input: T) => Promise<R>) {
  const client = useQueryClient();
  return useMutation({ mutationFn: change, onSuccess: () => client.invalidateQueries({ queryKey: ["views"] }) });
}
export const useCreateView = () => useViewChange((body: ViewWish) => send<SavedView>("POST", "views", body));
export const useChangeView = () => useViewChange(({ id, body }: { id: number; body: ViewWish }) => send<SavedView>("PUT", `views/${id}`, body));
export const useRemoveView = () => useViewChange((id: number) => send<void>("DELETE", `views/${id}`));
