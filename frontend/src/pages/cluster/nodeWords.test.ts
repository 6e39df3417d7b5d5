import { expect, it } from "vitest";
import type { NodeDetail } from "../../api/types";
import { byFrequency, faultsMeta, heldWords, nodeSentence } from "./nodeWords";

const now = new Date(2026, 10, 22, 12, 0);
const gpu = (index: number, number: number | null) => ({ index, job: number === null ? null : { number, name: null, project: "Vision" } });

function node(changes: object = {}): NodeDetail {
  return {
    name: "oak-01", gpus: 2, lost: false, drain: null, check: { state: null }, last_seen_at: new Date(2026, 10, 22, 11, 55).toISOString(), accelerators: [gpu(0, 7), gpu(1, null)], jobs: [{}],
    use: { allocated_part: 0.75, bucket_s: 1800, allocated: [[now.getTime() / 1000, 0.75], [now.getTime() / 1000 + 1800, null]] }, faults: [], faults_by_reason: {}, ...changes,
  } as unknown as NodeDetail;
}
const said = (changes: object = {}) => Object.values(nodeSentence(node(changes), now)).join("").replaceAll(/[\u2009\u00a0]/g, " ");

it("says first what the node does now, then how it has been", () => {
  expect(said()).toBe("1 of 2 GPUs of oak-01 is in use by 1 job. In the last 24 h 75 % of it was allocated. No run failed on it in the last 7 days.");
  expect(said({ accelerators: [gpu(0, null), gpu(1, null)], jobs: [] })).toContain("No job uses oak-01: all 2 GPUs are free.");
  expect(said({ faults_by_reason: { runner_lost: 2, signal: 1 } })).toContain("3 runs failed on it");
  expect(said({ gpus: 0, accelerators: [], jobs: [], use: { allocated_part: null, allocated: [] } })).toBe("oak-01 has no GPU that it reports. No run failed on it in the last 7 days.");
});

it("says that it is lost or drained before anything else", () => {
  const drain = { state: "draining", deadline_at: new Date(2026, 10, 22, 18, 0).toISOString() };
  expect(said({ drain })).toContain("oak-01 is draining until 18:00: nothing new starts there; 1 job is there.");
  expect(said({ drain: { state: "drained", deadline_at: null }, jobs: [] })).toContain("oak-01 is drained: nothing new starts there; no job is there.");
  expect(said({ check: { state: "failed" } })).toContain("oak-01 failed its check: nothing new starts there; 1 job is there.");
  expect(said({ drain, check: { state: "checking" } })).toContain("oak-01 is draining");
  expect(said({ unclear: "UNKNOWN", unclear_since_at: new Date(2026, 10, 22, 11, 50).toISOString() })).toContain("oak-01 is unclear: its engine says UNKNOWN since 11:50; its jobs keep running, and no job starts there; 1 job is there.");
  expect(said({ power: "powered_down", up_in_s: 90.4, jobs: [] })).toContain("oak-01 is powered down: its engine powers it up for the first job that is sent there, which takes about 90 s; no job is there.");
  expect(said({ power: "powering_up", up_in_s: 12 })).toContain("oak-01 is powering up: its engine powers it up for a job, and it is up in about 12 s; 1 job is there.");
  expect(said({ drain, lost: true })).toContain("oak-01 is lost, last seen 5 min ago; 1 job is there.");
});

it("counts faults by reason, and says where not all are listed", () => {
  expect(byFrequency({ signal: 1, runner_lost: 30, out_of_memory: 1 }).map(([reason]) => reason)).toEqual(["runner_lost", "out_of_memory", "signal"]);
  expect(faultsMeta(node({ faults_by_reason: { runner_lost: 30 }, faults: Array.from({ length: 20 }) }))).toBe("last 7 days, the newest 20 of 30");
  expect(faultsMeta(node())).toBe("last 7 days");
});

it("reads a half hour in GPUs and as a part of them", () => {
  expect(heldWords(node().use, 2, 0).replaceAll(/[\u2009\u00a0]/g, " ")).toBe("12:00–12:30: 1.5 of 2 GPUs, 75 %");
  expect(heldWords(node().use, 2, 1)).toBe("12:30–13:00: it was not there yet");
  expect(heldWords(node().use, 2, 9)).toBe("");
});
