import { Link } from "react-router";

/** A node's name, and the way to its page. */
export function NodeLink({ name }: { name: string }) {
  return <Link className="link" to={`/cluster/nodes/${encodeURIComponent(name)}`}>{name}</Link>;
}
