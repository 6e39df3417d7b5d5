import { useId, useState, type CSSProperties, type ReactNode } from "react";
import { clock } from "../lib/format";
import { ApiError } from "../api/client";
import { sentenceOf } from "../lib/isolated";

interface Props {
  title: string;
  meta?: ReactNode;
  right?: ReactNode;
  children: ReactNode;
  style?: CSSProperties;
}

export function Panel({ title, meta, right, children, style }: Props) {
  const id = useId();
  return (
    <section className="panel" aria-labelledby={id} style={style}>
      <header className="ph">
        <h2 id={id}>{title}</h2>
        {meta !== undefined && <span className="meta">{typeof meta === "string" ? sentenceOf(meta) : meta}</span>}
        {right !== undefined && <div className="r">{right}</div>}
      </header>
      {children}
    </section>
  );
}

/** Blocks in the shape of what is coming; they appear after 200 ms. */
export function Skeleton({ height, width, count = 1 }: { height: number; width?: number | string; count?: number }) {
  return (
    <div aria-hidden style={{ display: "grid", gap: 8 }}>
      {Array.from({ length: count }, (_, i) => <div key={i} className="sk" style={{ height, width: width ?? "100%" }} />)}
    </div>
  );
}

/** In place of a page's first sentence. */
export function SentenceWaits() {
  return <div aria-hidden className="saywaits"><div className="sk" /></div>;
}

interface AfterProps {
  until: { isLoading: boolean }[];
  children: ReactNode;
}

/** What stands below something still loading: it asks for its own at once, and is seen when its place is known. */
export function After({ until, children }: AfterProps) {
  const [shown, setShown] = useState(false);
  if (!shown && until.every((query) => !query.isLoading)) setShown(true);
  return <div style={{ display: "contents", visibility: shown ? undefined : "hidden" }}>{children}</div>;
}

interface Asked {
  error: Error | null;
  errorUpdatedAt: number;
  refetch: () => unknown;
}

export function Fault({ what, query }: { what: string; query: Asked }) {
  const status = query.error instanceof ApiError && query.error.status > 0 ? ` (${query.error.status})` : "";
  return (
    <div className="fault" role="alert">
      <span>
        {what} could not be read since {clock(new Date(query.errorUpdatedAt), true)}: {query.error?.message}{status}
      </span>
      <button type="button" className="btn sm" onClick={() => void query.refetch()}>Retry</button>
    </div>
  );
}

interface LoadableProps<T> {
  query: Asked & { data: T | undefined };
  what: string;
  skeleton: ReactNode;
  children: (data: T) => ReactNode;
}

/** One query's four faces: loading, failed, failed with older data still shown, and there. */
export function Loadable<T>({ query, what, skeleton, children }: LoadableProps<T>) {
  if (query.data !== undefined) {
    return <>{query.error && <Fault what={what} query={query} />}{children(query.data)}</>;
  }
  return query.error ? <Fault what={what} query={query} /> : <div className="pb">{skeleton}</div>;
}
