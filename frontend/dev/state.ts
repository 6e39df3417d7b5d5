import { events, holds, jobs, NODES, PROJECTS, rnd, speedOf, type MockEvent, type MockJob } from "./world";

export const iso = (at: number | null) => (at === null ? null : new Date(at).toISOString());
const money = (value: number) => value.toFixed(4);
export const rateOf = (job: MockJob) => (job.gpus[0] ? NODES[job.gpus[0].node]!.price : job.type === "h200" ? 3.8 : 1.1);

export function queue(): MockJob[] {
  return [...jobs.values()].filter((job) => job.state === "queued").sort((a, b) => a.submitted - b.submitted);
}

function share(job: MockJob): number {
  const frozen = { 2426: 0.24, 2423: 0.29, 2427: 0.31, 2425: 0.33, 2422: 0.34, 2421: 0.38, 2420: 0.41, 2424: 0.45, 2418: 0.47, 2431: 0.52, 2417: 0.55 }[job.number];
  return frozen ?? 0.5;
}

export function jobJson(job: MockJob, now: number) {
  const held = job.gpus.length;
  const speed = held > 0 ? speedOf(job, held) : speedOf(job, job.max);
  const left = ((job.total - job.step) / speed) * 1000;
  const ended = job.finished !== null;
  const end = held > 0 ? now + left : null;
  const total = job.cost + (left / 3_600_000) * rateOf(job) * Math.max(1, held);
  return {
    id: `00000000-0000-4000-8000-${String(job.number).padStart(12, "0")}`, number: job.number, name: job.name,
    project: { key: job.project, name: PROJECTS.find((p) => p.key === job.project)!.name },
    owner: { name: job.owner, email: `${job.owner.split(" ")[0]!.toLowerCase()}@example.org` },
    state: job.state, run_state: job.states.at(-1)!.state,
    reason: { token: job.state === "queued" ? job.token : "GREW_BEST_GAIN", text: job.state === "queued" ? job.reason : `Holds ${held} GPUs since the round that gave the most steps per second within the bound.` },
    model_type: job.model, command: null, total_steps: job.total, step: Math.round(job.step), progress: job.step / job.total, batch_size: 256,
    gpus: { min: job.min, max: job.max, types: [job.type], share_percent: 100, memory_mib: null }, priority: 0, restartable: true, labels: job.number === 2418 ? { exp: "aug-3", seed: "7" } : {},
    emulated: job.gpus.some((gpu) => NODES[gpu.node]!.emulated), pace_missed: false,
    allocation: held ? { type: NODES[job.gpus[0]!.node]!.type, count: held, epoch: job.epoch, gpus: job.gpus, share_percent: 100 } : null,
    throughput: { steps_per_s: job.state === "running" ? (job.history.at(-1)?.steps ?? null) : null, predicted_steps_per_s: speed, source: "measured", age_s: 3700, samples: 47 },
    relative_throughput: held ? share(job) : null, slowdown: held ? 1 / share(job) : null, protected_until_at: job.kind === "protected" && held ? iso(job.phaseEnds) : null,
    submitted_at: iso(job.submitted), started_at: iso(job.started), finished_at: iso(job.finished),
    expected_end_at: iso(end), expected_end_low_at: end ? iso(end - left * 0.09) : null, expected_end_high_at: end ? iso(end + left * 0.3) : null,
    queue_position: job.state === "queued" ? queue().indexOf(job) + 1 : null,
    cost: { so_far: money(job.cost), estimated: money(ended ? job.cost : total), currency: "USD" },
    times: { queueing_s: ((job.started ?? now) - job.submitted) / 1000, launching_s: 120, running_s: job.started ? ((job.finished ?? now) - job.started) / 1000 - 120 : 0 },
    rescales: job.rescales.length, run: job.started ? { id: "r1", attempt: 1, epoch: job.epoch } : null,
    exit: job.state === "succeeded" ? { reason: "finished", message: "All steps are done.", exit_code: 0, signal: null } : null, can_cancel: !ended,
  };
}

export function eventJson(event: MockEvent) {
  const job = event.number === null ? undefined : jobs.get(event.number);
  return { id: String(event.id), at: iso(event.at), kind: event.kind, job: job ? { number: job.number, name: job.name } : null, project: event.project, text: event.text, detail: {} };
}

const byId = (list: MockEvent[]) => Object.fromEntries(list.slice(0, 50).map((event) => [String(event.id), eventJson(event)]));

function accelerators(name: string, gpus: number) {
  const open = new Map(holds.filter((hold) => hold.node === name && hold.to === null).map((hold) => [hold.index, hold]));
  return Object.fromEntries(
    Array.from({ length: gpus }, (_, index) => {
      const hold = open.get(index);
      if (!hold) return [String(index), { job: null, state: name === "oak-04" && index === 7 ? "draining" : "free", utilisation: null }];
      const busy = hold.kind === "launching" || hold.kind === "moving" ? 0 : 0.74 + ((index * 37 + hold.number) % 25) / 100;
      return [String(index), { job: hold.number, state: "held", kind: hold.kind, utilisation: busy }];
    }),
  );
}

export function clusterState(now: number) {
  const active = [...jobs.values()].filter((job) => job.gpus.length > 0);
  const waiting = queue();
  const shares = active.map(share);
  const busy = active.reduce((sum, job) => sum + job.gpus.length, 0);
  const mean = shares.reduce((sum, value) => sum + value, 0) / Math.max(1, shares.length);
  return {
    cluster: { name: "north", speedup: 1, currency: "USD", round: 18204, policy: { name: "f_scheduling", parameters: { v_bound: 0.04, min_gain: 1 }, v_bound: 0.04 }, last_event_at: iso(events[0]?.at ?? now) },
    tiles: {
      utilisation: 0.89 + Math.round(rnd() * 4) / 100, gpus_total: 32, gpus_busy: busy, queued: waiting.length, oldest_wait_since_at: iso(waiting[0]?.submitted ?? null),
      variance: 0.014, v_bound: 0.04, spend_per_hour: active.reduce((sum, job) => sum + job.gpus.length * rateOf(job), 0).toFixed(2), spend_month: "11904.22", budget_month: "20000.00",
      running: active.length, mean_relative_throughput: mean, relative_throughputs: shares,
    },
    nodes: Object.fromEntries(
      Object.entries(NODES).map(([name, node]) => [name, { type: node.type, gpus: node.gpus, cpus: node.gpus * 16, host_memory_mib: node.gpus * 131_072, emulated: node.emulated, schedulable: true, lost: false, accelerators: accelerators(name, node.gpus), price_per_hour: (node.gpus * node.price).toFixed(2), free_reason: "no job gains" }]),
    ),
    jobs: Object.fromEntries([...active, ...waiting].map((job) => [String(job.number), { number: job.number, project: job.project, state: job.state, gpus: job.gpus.length }])),
    queue: waiting.map((job) => job.number),
    events: byId(events.filter((event) => event.project === null)),
  };
}

export function projectState(key: string, now: number) {
  const own = [...jobs.values()].filter((job) => job.project === key && (job.finished === null || now - job.finished < 3_600_000));
  const project = PROJECTS.find((entry) => entry.key === key)!;
  return {
    project: { ...project, gpu_quota: 12, gpus_held: own.reduce((sum, job) => sum + job.gpus.length, 0) },
    jobs: Object.fromEntries(own.map((job) => [String(job.number), jobJson(job, now)])),
    events: byId(events.filter((event) => event.project === key)),
  };
}
