/** What somebody named: it wraps anywhere, and its direction does not reach what stands beside it. */
export function Name({ children, title }: { children: string; title?: string }) {
  return <bdi className="name" title={title}>{children}</bdi>;
}
