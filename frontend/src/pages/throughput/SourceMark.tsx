import type { ReactNode } from "react";
import type { CurvePoint } from "../../api/types";

const SHAPES: Record<CurvePoint["source"], ReactNode> = {
  measured: <circle cx="5" cy="5" r="3.6" fill="currentColor" />,
  user: <path d="M5 1.2 8.8 5 5 8.8 1.2 5z" fill="currentColor" />,
  catalogue: <rect x="1.8" y="1.8" width="6.4" height="6.4" />,
  estimated: <circle cx="5" cy="5" r="3.6" strokeDasharray="1.6 1.4" />,
  trial: <path d="M1.6 8.4 5 1.6l3.4 6.8z" />,
};

/** What a throughput rests on, by its form: the word stands beside it. */
export function SourceMark({ source }: { source: CurvePoint["source"] }) {
  return <svg width="10" height="10" viewBox="0 0 10 10" fill="none" stroke="currentColor" strokeWidth="1.2" aria-hidden style={{ flex: "none" }}>{SHAPES[source]}</svg>;
}
