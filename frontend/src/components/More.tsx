interface Paged {
  hasNextPage: boolean;
  isFetchingNextPage: boolean;
  fetchNextPage: () => unknown;
}

/** The way to the next page of a list. */
export function More({ query, label }: { query: Paged; label: string }) {
  if (!query.hasNextPage) return null;
  return (
    <button type="button" className="more" style={{ padding: 8, borderRadius: "0 0 8px 8px" }} disabled={query.isFetchingNextPage} onClick={() => void query.fetchNextPage()}>
      {query.isFetchingNextPage ? "Reading" : label}
    </button>
  );
}
