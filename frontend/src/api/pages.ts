import { keepPreviousData, useInfiniteQuery } from "@tanstack/react-query";
import { request, url, type Query } from "./client";
import type { Page } from "./types";

/** A list, page after page as somebody asks for more; what was there stays while another question is answered. */
export function usePages<T>(path: string, query: Query, { enabled = true, everyMs = 0 } = {}) {
  return useInfiniteQuery({
    queryKey: ["pages", path, query],
    initialPageParam: url(path, query),
    queryFn: ({ pageParam, signal }) => request<Page<T>>(pageParam, { signal }),
    getNextPageParam: (page) => page.next ?? undefined,
    placeholderData: keepPreviousData,
    enabled,
    refetchInterval: everyMs || false,
  });
}

/** The rows of all pages that are there. */
export function rowsOf<T>(data: { pages: Page<T>[] }): T[] {
  return data.pages.flatMap((page) => page.results);
}
