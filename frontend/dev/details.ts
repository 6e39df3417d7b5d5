import { iso, jobJson, queue, rateOf } from "./state";
import { holds, jobs, NODES, speedOf, type MockJob } from "./world";

const curve = (base: number, most: number) => Array.from({ length: most }, (_, i) => base * (i + 1) ** 0.82);

export const MODELS = [
  { name: "resnet50", title: "ResNet-50", description: "Image classification", default_batch_size: 256, runs_seen: 212, base: 2.6 },
  { name: "inception_v3", title: "Inception v3", description: "Image classification", default_batch_size: 256, runs_seen: 96, base: 2.4 },
  { name: "tiny_lm", title: "Tiny LM", description: "A small transformer", default_batch_size: 64, runs_seen: 0, base: 6.1 },
].map(({ base, ...model }) => ({
  ...model,
  curves: {
    h200: { steps_per_s: curve(base, 8), source: model.runs_seen ? "measured" : "catalogue", age_s: 259_200, samples: model.runs_seen ? 47 : 0, points: [] },
    l40s: { steps_per_s: curve(base * 0.45, 8), source: "catalogue", age_s: null, samples: 0, points: [] },
  },
}));

const CHECKPOINTS = (job: MockJob) =>
  [0, 1, 2].map((i) => ({ step: Math.max(0, Math.floor(job.step / 2000 - i) * 2000), bytes: 482_000_000, seconds: 3.1, at: iso(Date.now() - (i + 1) * 240_000), path: "" }));

export function jobDetail(job: MockJob, now: number) {
  return {
    ...jobJson(job, now),
    spec: { name: job.name, project: job.project, model_type: job.model, total_steps: job.total, batch_size: 256, gpus: { min: job.min, max: job.max, types: [job.type] }, checkpoint: { every_steps: 2000, keep: 3 }, max_cost: "60.00" },
    runs: job.started ? [{ id: "r1", attempt: 1, state: job.states.at(-1)!.state, epoch: job.epoch, started_at: iso(job.started), finished_at: iso(job.finished), exit: null }] : [],
    links: [{ name: "TensorBoard", url: `https://tensorboard.example.org/runs/${job.number}` }],
    checkpoints: job.step > 2000 ? CHECKPOINTS(job) : [],
    curve: { [job.type]: { steps_per_s: curve(job.base, 8), source: "measured", age_s: 3700, samples: 47 } },
  };
}

function logLines(job: MockJob): string {
  const lines: string[] = [];
  const clock = (at: number) => new Date(at).toISOString().slice(11, 19);
  for (const entry of job.history.filter((_, i) => i % 2 === 0)) {
    if (entry.step % 7 === 0) lines.push(`${clock(entry.at)}  checkpoint step ${entry.step} written in 3.1 s, 482 MB, checksum ok`);
    if (entry.step % 61 === 0) lines.push(`${clock(entry.at)}  WARNING data loader waited 1.2 s`);
    if (entry.step % 97 === 0) lines.push(`${clock(entry.at)}  ERROR worker 3 lost a shared memory segment, reopened`);
    lines.push(`${clock(entry.at)}  step ${entry.step.toLocaleString("en-US")}  loss ${entry.loss.toFixed(3)}  lr 0.0312  ${entry.steps.toFixed(2)} steps/s`);
  }
  return `${lines.join("\n")}\n`;
}

export function logs(job: MockJob, query: URLSearchParams) {
  const all = logLines(job);
  const tail = Number(query.get("tail") ?? 0);
  const search = query.get("search");
  let text = all;
  let offset = Number(query.get("offset") ?? 0);
  if (search) text = all.split("\n").filter((line) => line.includes(search)).join("\n");
  else if (tail) {
    text = all.split("\n").slice(-tail - 1).join("\n");
    offset = all.length - text.length;
  } else text = all.slice(offset, offset + Number(query.get("limit") ?? 65536));
  return { rank: Number(query.get("rank") ?? 0), ranks: job.gpus.map((_, i) => i), offset, next_offset: search ? all.length : offset + text.length, size: all.length, text, complete: job.finished !== null };
}

export function part(job: MockJob, name: string, query: URLSearchParams, now: number): unknown {
  switch (name) {
    case "logs":
      return logs(job, query);
    case "metrics": {
      const thin = job.history.filter((_, i) => i % Math.max(1, Math.floor(job.history.length / 500)) === 0);
      const predicted = job.allocations.flatMap((a) => [[(a.from + 120_000) / 1000, speedOf(job, a.count)], [(a.to ?? now) / 1000, speedOf(job, a.count)]]);
      return { series: { loss: thin.map((h) => [h.at / 1000, h.step, h.loss]), steps_per_s: thin.map((h) => [h.at / 1000, h.step, h.steps]) }, names: ["loss", "steps_per_s"], predicted_steps_per_s: predicted };
    }
    case "timeline":
      return {
        states: job.states.map((s) => ({ state: s.state, coarse: s.coarse, from_at: iso(s.from), to_at: iso(s.to) })),
        allocations: job.allocations.map((a) => ({ ...a, from: undefined, to: undefined, from_at: iso(a.from), to_at: iso(a.to) })),
        rescales: job.rescales.map((r) => ({ ...r, at: iso(r.at) })),
      };
    case "cost": {
      const json = jobJson(job, now);
      const hours = job.cost / rateOf(job);
      const estimated = Number(json.cost.estimated);
      return {
        currency: "USD", so_far: json.cost.so_far, estimated: json.cost.estimated, estimated_low: (estimated * 0.94).toFixed(2), estimated_high: (estimated * 1.12).toFixed(2), basis: "measured throughput on the GPUs it holds",
        gpu_hours: hours, measured_gpu_hours: hours, used_gpu_hours: hours * 0.86, utilisation: 0.91, rate_per_gpu_hour: rateOf(job).toFixed(2), rate_per_hour: (rateOf(job) * job.gpus.length).toFixed(2), by_type: [{ type: job.type, gpu_hours: hours, amount: json.cost.so_far }], lost_to_restarts: "0.61",
      };
    }
    case "explanation":
      return {
        token: job.state === "queued" ? job.token : "GREW_BEST_GAIN",
        text: job.state === "queued" ? job.reason : "Two H200 became free on its node when #2412 finished. Giving them to this job added 3.6 steps/s, the most of any job that could use them. Variance of relative throughput stayed at 0.016, under the bound of 0.040.",
        at: iso(job.allocations.at(-1)?.from ?? now), round: 18163,
        ahead: job.state === "queued" ? queue().filter((other) => other.submitted < job.submitted).map((other) => ({ number: other.number, name: other.name, project: other.project, gpus: other.min, share_percent: 100, state: "queued" })) : [],
        weighed: job.state === "queued" ? [] : [{ number: job.number, name: job.name, gain_steps_per_s: 3.6, variance: 0.016 }, { number: 2420, name: "conformer-asr", gain_steps_per_s: 2.4, variance: 0.019 }, { number: 2417, name: "gnn-molecules", gain_steps_per_s: 1.1, variance: 0.038 }],
        would_change: job.state === "queued" ? "It starts when four H200 of one node are free, or sooner if L40S are allowed too." : "It will not grow further: 4 is the most it asked for. It gives up GPUs only if #2429 cannot start otherwise.", detail: {},
      };
    case "events":
      return { next: null, previous: null, results: [] };
    default:
      return null;
  }
}

export function timeline(query: URLSearchParams, now: number) {
  const from = Date.parse(query.get("from_at") ?? "") || now - 7_200_000;
  return {
    from_at: iso(from), to_at: iso(now),
    nodes: Object.entries(NODES).map(([name, node]) => ({ name, type: node.type, gpus: node.gpus, emulated: node.emulated })),
    holds: holds.filter((hold) => (hold.to ?? now) > from).map((hold) => {
      const job = jobs.get(hold.number)!;
      return { node: hold.node, index: hold.index, job: { number: job.number, name: job.name, project: job.project }, epoch: hold.epoch, count: hold.count, from_at: iso(hold.from), to_at: iso(hold.to), kind: hold.kind };
    }),
    rescales: [...jobs.values()].flatMap((job) => job.rescales.map((r) => ({ number: job.number, at: iso(r.at), before: r.before, after: r.after }))),
  };
}

export function history(now: number) {
  return {
    points: Array.from({ length: 60 }, (_, i) => ({
      at: iso(now - (60 - i) * 120_000), utilisation: 0.72 + 0.15 * Math.sin(i / 9) ** 2 + ((i * 7) % 5) / 60, queued: Math.round(3 + 3 * Math.abs(Math.sin(i / 12))),
      variance: 0.026 - i * 0.0002 + ((i * 13) % 7) / 900, spend_per_hour: (52 + i * 0.35 + ((i * 5) % 7)).toFixed(2),
    })),
  };
}
