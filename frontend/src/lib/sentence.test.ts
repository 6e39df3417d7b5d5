import { expect, it } from "vitest";
import type { ClusterState, FullTiles } from "./blanks";
import type { JobView } from "./liveContext";
import { overviewSentence } from "./sentence";

const NOW = new Date(2026, 10, 21, 14, 0);

function cluster(tiles: Partial<FullTiles>, queue: number[] = [], holding = tiles.running ?? 12): ClusterState {
  const jobs = Object.fromEntries(Array.from({ length: holding }, (_, i) => [String(i), { number: i, project: "vision", state: "running" as const, gpus: 2 }]));
  const all: FullTiles = {
    gpus_total: 32, gpus_busy: 29, utilisation: 0.9, running: 12, queued: queue.length, oldest_wait_since_at: null, variance: 0.014, v_bound: 0.04,
    mean_relative_throughput: 0.4, relative_throughputs: [], spend_per_hour: "1", spend_month: "1", budget_month: null, ...tiles,
  };
  return { cluster: { name: "north", speedup: 1, emulated: false, currency: "USD", round: 1, policy: { name: "f_scheduling", parameters: {} } }, tiles: all, nodes: {}, jobs, queue, events: {} };
}

const words = (state: ClusterState, jobs = new Map<number, JobView>()) => overviewSentence(state, jobs, NOW).map((part) => part.text).join("");

it("says that all is even and full", () => expect(words(cluster({}))).toBe("On an even keel. 12 jobs share 29 of 32 GPUs and are treated alike within the bound. Nothing waits; 3 GPUs are free."));
it("says when it is not even", () => expect(words(cluster({ variance: 0.06 }))).toContain("Listing. 12 jobs share 29 of 32 GPUs, but not alike: the slowdown variance 0.060 is above the bound 0.040."));
it("counts those that start, for they hold GPUs too", () => expect(words(cluster({ running: 2, gpus_busy: 6, gpus_total: 6 }, [], 3))).toContain("3 jobs share 6 of 6 GPUs"));
it("names the first that waits", () => expect(words(cluster({}, [2429, 2430]))).toContain("Two jobs wait; #2429 is first."));
it("is calm about an empty cluster", () => expect(words(cluster({ running: 0, gpus_busy: 0, variance: null }))).toBe("All is calm. All 32 GPUs are free. Nothing waits."));
it("asks for accelerators where there are none", () => expect(words(cluster({ gpus_total: 0 }))).toMatch(/^No accelerators yet\./));
it("puts a lost node first", () => {
  const state = cluster({});
  state.nodes["oak-04"] = { type: "l40s", gpus: 8, emulated: false, schedulable: true, drained: false, lost: true, memory_mib: 0, held: 0, price_per_hour: "1", accelerators: {} };
  expect(words(state)).toMatch(/^oak-04 is lost\. /);
});
