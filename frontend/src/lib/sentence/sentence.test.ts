import { expect, it } from "vitest";
import type { ClusterState, FullTiles } from "../live/blanks";
import type { JobView } from "../live/liveContext";
import { overviewSentence } from "./sentence";

const NOW = new Date(2026, 10, 21, 14, 0);

function cluster(tiles: Partial<FullTiles>, queue: number[] = [], holding = tiles.running ?? 12): ClusterState {
  const jobs = Object.fromEntries(Array.from({ length: holding }, (_, i) => [String(i), { number: i, project: "vision", state: "running" as const, gpus: 2 }]));
  const all: FullTiles = {
    gpus_total: 32, gpus_busy: 29, gpus_others: 0, utilisation: 0.9, running: 12, queued: queue.length, oldest_wait_since_at: null, variance: 0.014, v_bound: 0.04,
    mean_relative_throughput: 0.4, relative_throughputs: [], spend_per_hour: "1", spend_month: "1", budget_month: null, ...tiles,
  };
  return { cluster: { name: "north", speedup: 1, engine: "This machine", emulated: false, currency: "USD", round: 1, policy: { name: "f_scheduling", parameters: {} } }, tiles: all, nodes: {}, jobs, queue, events: {} };
}

const node = { type: "l40s", gpus: 8, emulated: false, schedulable: true, drained: false, lost: false, memory_mib: 0, cpus: 0, host_memory_mib: 0, allocated: 0, others: 0, price_per_hour: "1", accelerators: {} };

function running(number: number, on: string, minutes: number): JobView {
  const full = { finished_at: null, expected_end_at: new Date(NOW.getTime() + minutes * 60_000).toISOString(), allocation: { type: "l40s", count: 1, epoch: 1, gpus: [{ node: on, index: 0 }] } };
  return { number, full } as JobView;
}

const words = (state: ClusterState, jobs = new Map<number, JobView>()) => overviewSentence(state, jobs, NOW).map((part) => part.text).join("");

it("says that all is even and full", () => expect(words(cluster({}))).toBe("On an even keel. 12 jobs share 29 of 32 GPUs and are treated alike within the bound. Nothing waits; 3 GPUs are free."));
it("says when it is not even", () => expect(words(cluster({ variance: 0.06 }))).toContain("Listing. 12 jobs share 29 of 32 GPUs, but not alike: the slowdown variance 0.060 is above the bound 0.040."));
it("counts those that start, for they hold GPUs too", () => expect(words(cluster({ running: 2, gpus_busy: 6, gpus_total: 6 }, [], 3))).toContain("3 jobs share 6 of 6 GPUs"));
it("says first that the engine does not answer", () => {
  const state = cluster({ running: 0, gpus_busy: 0 });
  state.cluster = { ...state.cluster, engine: "Slurm", engine_away_since_at: NOW.toISOString() };
  expect(words(state)).toMatch(/^Slurm does not answer\. /);
});
it("names the first that waits for GPUs, not one before it that waits for something else", () => {
  const state = cluster({}, [2429, 2430]);
  state.nodes["oak-01"] = { ...node, first_waiting: 2430 };
  expect(words(state)).toContain("Two jobs wait; #2430 is first.");
});
it("says that nobody who waits could have GPUs now", () => {
  const state = cluster({}, [2429, 2430]);
  state.nodes["oak-01"] = node;
  expect(words(state)).toContain("Two jobs wait, none of them for GPUs that it could have now.");
});
it("says when GPUs are free that somebody waits for, and who is first for these", () => {
  const state = cluster({}, [5, 6, 7]);
  state.nodes["oak-01"] = { ...node, first_waiting: 7 };
  state.nodes["oak-02"] = node;
  const jobs = new Map([running(1, "oak-02", 5), running(2, "oak-01", 20)].map((job) => [job.number, job]));
  expect(words(state, jobs)).toContain("; the next GPUs are expected free at 14:20, and #7 is first for them.");
});
it("says when the first one starts where that was worked out, rather than when something is free", () => {
  const state = cluster({}, [7]);
  state.nodes["oak-01"] = { ...node, first_waiting: 7 };
  const waits = { number: 7, full: { finished_at: null, allocation: null, expected_start: { p50_at: new Date(NOW.getTime() + 25 * 60_000).toISOString() } } } as unknown as JobView;
  const jobs = new Map([running(2, "oak-01", 20), waits].map((job) => [job.number, job]));
  expect(words(state, jobs)).toContain("One job waits; #7 is first, and starts at about 14:25.");
});
it("counts no GPU of a node that is lost or drained as free", () => {
  const state = cluster({});
  state.nodes["oak-03"] = { ...node, gpus: 2, schedulable: false, drained: true };
  expect(words(state)).toContain("Nothing waits; 1 GPU is free.");
  state.nodes["oak-04"] = { ...node, gpus: 1, lost: true };
  expect(words(state)).toMatch(/Nothing waits\.$/);
  const calm = cluster({ running: 0, gpus_busy: 0, variance: null });
  calm.nodes["oak-03"] = { ...node, gpus: 2, schedulable: false, drained: true };
  expect(words(calm)).toBe("All is calm. 30 of 32 GPUs are free. Nothing waits.");
});

it("is calm about an empty cluster", () => expect(words(cluster({ running: 0, gpus_busy: 0, variance: null }))).toBe("All is calm. All 32 GPUs are free. Nothing waits."));
it("says that others have all", () => {
  const state = cluster({ gpus_total: 0, gpus_others: 8, gpus_busy: 0, running: 0 });
  state.cluster = { ...state.cluster, engine: "Slurm" };
  expect(words(state)).toMatch(/^All 8 GPUs are used by others in Slurm\./);
});
it("asks for accelerators where there are none", () => expect(words(cluster({ gpus_total: 0 }))).toMatch(/^No accelerators yet\./));
it("puts a lost node first", () => {
  const state = cluster({});
  state.nodes["oak-04"] = { type: "l40s", gpus: 8, emulated: false, schedulable: true, drained: false, lost: true, memory_mib: 0, cpus: 0, host_memory_mib: 0, allocated: 0, others: 0, price_per_hour: "1", accelerators: {} };
  expect(words(state)).toMatch(/^oak-04 is lost\. /);
});
