/** An invented cluster that lives: jobs advance, end, wait and are rescaled. For developing pages without a portal. */
export interface MockJob {
  number: number;
  name: string;
  project: string;
  owner: string;
  model: string;
  type: string;
  min: number;
  max: number;
  total: number;
  step: number;
  base: number;
  state: string;
  gpus: { node: string; index: number }[];
  epoch: number;
  kind: "launching" | "protected" | "running" | "moving";
  phaseEnds: number;
  submitted: number;
  started: number | null;
  finished: number | null;
  cost: number;
  reason: string;
  token: string;
  history: { at: number; steps: number; loss: number; step: number }[];
  allocations: { epoch: number; type: string; count: number; gpus: { node: string; index: number }[]; from: number; to: number | null }[];
  states: { state: string; coarse: string; from: number; to: number | null }[];
  rescales: { at: number; before: number; after: number }[];
}

export interface MockHold {
  node: string;
  index: number;
  number: number;
  epoch: number;
  count: number;
  from: number;
  to: number | null;
  kind: string;
}

export interface MockEvent {
  id: number;
  at: number;
  kind: string;
  number: number | null;
  project: string | null;
  text: string;
}

export const NODES: Record<string, { type: string; gpus: number; emulated: boolean; price: number }> = {
  "helm-01": { type: "h200", gpus: 8, emulated: false, price: 3.8 },
  "helm-02": { type: "h200", gpus: 8, emulated: false, price: 3.8 },
  "oak-03": { type: "l40s", gpus: 8, emulated: false, price: 1.1 },
  "oak-04": { type: "l40s", gpus: 8, emulated: true, price: 1.1 },
};

export const PROJECTS = [
  { key: "vision", name: "Vision" }, { key: "language", name: "Language" },
  { key: "speech", name: "Speech" }, { key: "chemistry", name: "Chemistry" },
];

const MINUTE = 60_000;
let seed = 7;
export const rnd = () => ((seed = (seed * 16807) % 2147483647) / 2147483647);
export const speedOf = (job: MockJob, gpus: number) => job.base * gpus ** 0.82;

export const jobs = new Map<number, MockJob>();
export const holds: MockHold[] = [];
export const events: MockEvent[] = [];
let eventId = 1;

export function say(at: number, kind: string, text: string, job?: MockJob, project: string | null = null): void {
  events.unshift({ id: eventId++, at, kind, number: job?.number ?? null, project: job?.project ?? project, text });
  events.length = Math.min(events.length, 120);
}

function make(number: number, name: string, project: string, type: string, min: number, max: number, base: number, total: number, ago: number): MockJob {
  const submitted = Date.now() - ago * MINUTE;
  const model = name.startsWith("resnet") ? "resnet50" : name.startsWith("inception") ? "inception_v3" : "tiny_lm";
  const job: MockJob = {
    number, name, project, owner: number % 3 ? "Ana Lindqvist" : "Jonas Weber", model, type, min, max, total, step: 0, base, state: "queued",
    gpus: [], epoch: 0, kind: "running", phaseEnds: 0, submitted, started: null, finished: null, cost: 0, reason: "", token: "WAITS_FOR_GPUS",
    history: [], allocations: [], states: [{ state: "WAITING_FOR_INITIAL_RESOURCE", coarse: "queued", from: submitted, to: null }], rescales: [],
  };
  jobs.set(number, job);
  return job;
}

export function enter(job: MockJob, at: number, state: string, coarse: string): void {
  const last = job.states.at(-1);
  if (last) last.to = at;
  job.state = coarse;
  job.states.push({ state, coarse, from: at, to: coarse === "succeeded" || coarse === "cancelled" || coarse === "failed" ? at : null });
}

function segment(job: MockJob, at: number, kind: MockJob["kind"]): void {
  for (const hold of holds) if (hold.number === job.number && hold.to === null) hold.to = at;
  job.kind = kind;
  for (const gpu of job.gpus) holds.push({ ...gpu, number: job.number, epoch: job.epoch, count: job.gpus.length, from: at, to: null, kind });
}

export function release(job: MockJob, at: number): void {
  for (const hold of holds) if (hold.number === job.number && hold.to === null) hold.to = at;
  const last = job.allocations.at(-1);
  if (last && last.to === null) last.to = at;
  job.gpus = [];
}

/** Gives GPUs from `at` on: a launch, then protection for three launches, then running. */
export function place(job: MockJob, gpus: { node: string; index: number }[], at: number, launch: number): void {
  const before = job.gpus.length;
  release(job, at);
  job.gpus = gpus;
  job.epoch += 1;
  job.started ??= at;
  if (before > 0) job.rescales.push({ at, before, after: gpus.length });
  job.allocations.push({ epoch: job.epoch, type: NODES[gpus[0]!.node]!.type, count: gpus.length, gpus, from: at, to: null });
  enter(job, at, "LAUNCHING", before > 0 ? "rescaling" : "starting");
  segment(job, at, before > 0 ? "moving" : "launching");
  job.phaseEnds = at + launch;
  say(at, before > 0 ? "REALLOCATED" : "ASSIGNED", before > 0 ? `grows from ${before} to ${gpus.length} GPUs.` : `starts on ${gpus.length} GPUs of ${gpus[0]!.node}.`, job);
}

export function advance(now: number, dt: number): void {
  for (const job of jobs.values()) {
    if (job.gpus.length === 0) continue;
    job.cost += (job.gpus.length * NODES[job.gpus[0]!.node]!.price * dt) / 3_600_000;
    if (now >= job.phaseEnds && (job.state === "starting" || job.state === "rescaling")) {
      enter(job, now, "RUNNING_PROTECTED", "running");
      segment(job, now, "protected");
      job.phaseEnds = now + 3 * 2 * MINUTE;
      say(now, "FIRST_STEP_READY", `runs on ${job.gpus.length} GPUs from step ${Math.round(job.step).toLocaleString("en-US")}.`, job);
    } else if (now >= job.phaseEnds && job.kind === "protected") {
      enter(job, now, "RUNNING", "running");
      segment(job, now, "running");
      say(now, "PROTECTION_ENDED", "is no longer protected.", job);
    }
    if (job.state !== "running") continue;
    const speed = speedOf(job, job.gpus.length) * (0.97 + rnd() * 0.06);
    job.step = Math.min(job.total, job.step + (speed * dt) / 1000);
    job.history.push({ at: now, steps: speed, step: Math.round(job.step), loss: 1.6 + 5 * Math.exp((-4 * job.step) / job.total) + rnd() * 0.05 });
    if (job.step >= job.total) {
      enter(job, now, "FINISHED", "succeeded");
      job.finished = now;
      release(job, now);
      say(now, "STEPS_DONE", `finished: ${job.total.toLocaleString("en-US")} steps, $${job.cost.toFixed(2)}.`, job);
    }
  }
}

const on = (node: string, ...indices: number[]) => indices.map((index) => ({ node, index }));

/** Two hours of history, played at ten-second steps. */
function history(): void {
  const script: [number, () => void][] = [
    [118, () => place(make(2418, "resnet50-imagenet", "vision", "h200", 1, 4, 2.6, 90_000, 121), on("helm-01", 0, 1), t, MINUTE)],
    [117, () => place(make(2412, "whisper-ablate", "speech", "h200", 4, 4, 3.1, 27_000, 119), on("helm-01", 2, 3, 4, 5), t, MINUTE)],
    [116, () => place(make(2413, "esm-probe", "chemistry", "h200", 2, 2, 3.4, 5_000, 118), on("helm-02", 6, 7), t, MINUTE)],
    [115, () => place(make(2420, "conformer-asr", "speech", "h200", 2, 6, 1.9, 90_000, 117), on("helm-02", 3, 4), t, 2 * MINUTE)],
    [114, () => place(make(2410, "vit-b16-lr", "vision", "l40s", 2, 2, 2.1, 8_000, 116), on("oak-03", 0, 1), t, MINUTE)],
    [113, () => place(make(2419, "bert-tiny", "language", "l40s", 4, 4, 4.4, 50_000, 115), on("oak-04", 0, 1, 2, 3), t, MINUTE)],
    [104, () => place(make(2406, "unet-warm", "vision", "l40s", 2, 2, 2.0, 9_000, 105), on("oak-03", 5, 6), t, MINUTE)],
    [98, () => place(make(2404, "ppo-lanes", "chemistry", "l40s", 2, 2, 6.5, 58_000, 99), on("oak-04", 4, 5), t, MINUTE)],
    [88, () => place(make(2417, "gnn-molecules", "chemistry", "h200", 1, 1, 19.4, 130_000, 92), on("helm-02", 6), t, MINUTE)],
    [84, () => place(make(2425, "vit-b16-finetune", "vision", "l40s", 2, 4, 1.25, 24_000, 87), on("oak-03", 0, 1), t, 2 * MINUTE)],
    [70, () => place(make(2427, "unet-segment", "vision", "l40s", 2, 2, 1.2, 20_000, 74), on("oak-03", 6, 7), t, MINUTE)],
    [64, () => place(make(2431, "bert-small-mlm", "language", "l40s", 2, 4, 2.1, 60_000, 65), on("oak-04", 0, 1), t, MINUTE)],
    [60, () => place(jobs.get(2418)!, on("helm-01", 0, 1, 2, 3), t, 2 * MINUTE)],
    [58, () => place(make(2421, "llama-1b-sft", "language", "h200", 2, 4, 0.75, 26_000, 61), on("helm-01", 4, 5), t, 3 * MINUTE)],
    [50, () => place(make(2422, "inception-v3-aug", "vision", "h200", 2, 2, 2.4, 30_000, 53), on("helm-02", 0, 1), t, MINUTE)],
    [36, () => place(jobs.get(2425)!, on("oak-03", 0, 1, 2), t, 2 * MINUTE)],
    [30, () => place(make(2426, "tts-vocoder", "speech", "l40s", 1, 2, 1.4, 30_000, 33), on("oak-03", 3), t, 2 * MINUTE)],
    [28, () => place(make(2423, "retrieval-embed", "language", "h200", 1, 1, 7.9, 40_000, 31), on("helm-02", 7), t, MINUTE)],
    [26, () => place(jobs.get(2431)!, on("oak-04", 0, 1, 2, 3), t, 2 * MINUTE)],
    [14, () => place(jobs.get(2421)!, on("helm-01", 4, 5, 6, 7), t, 2 * MINUTE)],
    [3, () => place(jobs.get(2420)!, on("helm-02", 2, 3, 4, 5), t, MINUTE)],
    [0.6, () => place(jobs.get(2426)!, on("oak-03", 3, 4), t, 4 * MINUTE)],
    [0.3, () => place(make(2424, "digits-cnn", "vision", "l40s", 2, 2, 30, 20_000, 7), on("oak-04", 4, 5), t, 2 * MINUTE)],
  ];
  let t = 0;
  const end = Date.now();
  const todo = script.map(([ago, action]) => ({ at: end - ago * MINUTE, action })).sort((a, b) => a.at - b.at);
  for (t = end - 120 * MINUTE; t < end; t += 10_000) {
    while (todo[0] && todo[0].at <= t) todo.shift()!.action();
    advance(t, 10_000);
  }
  const waits: [number, string, string, string, number, number, number, string, string][] = [
    [2429, "mixtral-eval", "language", "h200", 4, 4, 41, "WAITS_PROTECTED", "Next in line. #2420 is protected for three more minutes; after that it can give up two H200, which with #2422 makes four on one node."],
    [2430, "depth-anything", "vision", "l40s", 2, 2, 33, "WAITS_ONE_NODE", "Two L40S are free, but on different nodes, and this job asks for one."],
    [2434, "pose-net-17", "vision", "h200", 1, 2, 18, "WAITS_BOUND", "Starting it now would lift slowdown variance to 0.044, above the bound of 0.040."],
    [2432, "asr-large-v2", "speech", "h200", 8, 8, 15, "WAITS_QUOTA", "Speech may hold 12 GPUs and holds 6; this job needs at least 8."],
    [2433, "md-forcefield", "chemistry", "h200", 2, 2, 12, "WAITS_BUDGET", "Chemistry has $4.10 left this month; this job is expected to cost $61. A manager can raise the budget."],
    [2435, "nightly-regress", "vision", "l40s", 1, 1, 4, "WAITS_START", "Held until 20:00, as its owner asked."],
  ];
  for (const [number, name, project, type, min, max, ago, token, reason] of waits) Object.assign(make(number, name, project, type, min, max, 2, 40_000, ago), { token, reason });
  say(end - 14_000, "round", "Round 18,204: one job grows, +1.4 steps/s. 12 jobs and 32 GPUs, decided in 6 ms.");
  say(end - 500_000, "node_drained", "oak-04 GPU 7 is draining, asked by R. Haddad: 12 °C warmer than usual.");
}

history();
