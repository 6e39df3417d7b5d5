import type { ClusterNode, NodeWindow } from "../../api/types";

const touches = (window: NodeWindow, node: ClusterNode) =>
  window.all_nodes || window.nodes.includes(node.name) || window.accelerator_types.includes(node.type);

/** The window that a node is in or comes into next; of those that begin alike the maintenance, which lets nobody in. */
export function nextWindow(node: ClusterNode, windows: NodeWindow[], now: Date): NodeWindow | undefined {
  const begins = (window: NodeWindow) => Math.max(Date.parse(window.start_at), now.getTime());
  const later = (window: NodeWindow) => (window.kind === "maintenance" ? 0 : 1);
  return windows
    .filter((window) => touches(window, node) && Date.parse(window.end_at) > now.getTime())
    .sort((a, b) => begins(a) - begins(b) || later(a) - later(b) || Date.parse(a.end_at) - Date.parse(b.end_at))[0];
}
