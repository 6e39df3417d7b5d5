import { expect, test } from "vitest";
import type { ClusterNode, NodeWindow } from "../../api/types";
import { nextWindow } from "./windows";

const node = { name: "n1", type: "v100" } as ClusterNode;
const now = new Date("2026-11-22T12:00:00Z");
const window = (kind: NodeWindow["kind"], from: string, to: string, more: Partial<NodeWindow> = {}) =>
  ({ kind, start_at: `2026-11-22T${from}:00Z`, end_at: `2026-11-22T${to}:00Z`, all_nodes: true, nodes: [], accelerator_types: [], ...more }) as NodeWindow;

test("a maintenance prevails over a reservation of the same time", () => {
  const found = nextWindow(node, [window("reservation", "10:00", "18:00"), window("maintenance", "11:00", "13:00")], now);
  expect(found?.kind).toBe("maintenance");
  const later = [window("reservation", "14:00", "18:00"), window("maintenance", "14:00", "15:00")];
  expect(nextWindow(node, later, now)?.kind).toBe("maintenance");
});

test("what begins first is next, if it is the node's and not over", () => {
  const first = window("reservation", "13:00", "14:00", { all_nodes: false, accelerator_types: ["v100"] });
  const others = [window("maintenance", "09:00", "11:00"), window("maintenance", "12:30", "13:00", { all_nodes: false, nodes: ["n2"] }), window("maintenance", "15:00", "16:00")];
  expect(nextWindow(node, [...others, first], now)).toBe(first);
  expect(nextWindow(node, [], now)).toBeUndefined();
});
