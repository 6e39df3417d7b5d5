import { Link } from "react-router";
import { Name } from "./Name";

/** A node's name, and the way to its page. */
export function NodeLink({ name }: { name: string }) {
  return <Link className="link" to={`/cluster/nodes/${encodeURIComponent(name)}`}><Name>{name}</Name></Link>;
}
