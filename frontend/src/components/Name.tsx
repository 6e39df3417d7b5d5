/** What somebody named: it wraps anywhere, or is cut where it stands in a table, and its direction does not reach what
 * stands beside it. */
export function Name({ children, title = children.length > 24 ? children : undefined }: { children: string; title?: string | undefined }) {
  return <bdi className="name" title={title}>{children}</bdi>;
}
