import type { IncomingMessage, ServerResponse } from "node:http";
import { history, jobDetail, MODELS, part, timeline } from "./details";
import { clusterState, jobJson, projectState } from "./state";
import { enter, events, jobs, PROJECTS, release, say, type MockJob } from "./world";
import { eventJson } from "./state";

export const seqs = new Map<string, number>();
let signedIn = process.env.EVENKEEL_MOCK_SIGNED_OUT !== "1";
let policy = { name: "f_scheduling", parameters: { v_bound: 0.04, min_gain: 1, protection: 3 } as Record<string, unknown>, changed_at: new Date().toISOString(), changed_by: "R. Haddad", effective_round: 18100, can_undo: true, notes: ["With a bound of 0.04 and four running jobs the bound has held back 3 grants today."] };
const tokens = [{ id: 1, name: "ci", prefix: "ek_7fa2", created_at: new Date().toISOString(), expires_at: null as string | null, last_used_at: null as string | null }];

const POLICIES = [
  { name: "f_scheduling", title: "F-scheduling", description: "Gives each GPU to the job that gains most, while the variance of relative throughput stays under a bound.", elastic: true, schema: { type: "object", properties: { v_bound: { type: "number", title: "Variance bound", description: "Largest variance of relative throughput among running jobs.", minimum: 0, maximum: 1, default: 0.04 }, min_gain: { type: "number", title: "Least gain", description: "Steps per second a rescale must add.", minimum: 0, default: 1 }, protection: { type: "number", title: "Protection", description: "Times the last launch a job keeps its GPUs.", minimum: 0, default: 3 }, objective: { type: "string", title: "Objective", enum: ["throughput", "relative"], default: "throughput" }, amortise: { type: "boolean", title: "Amortise restarts", default: false } } } },
  { name: "fifo_gang", title: "First in, first out", description: "Each job waits for all it asked for.", elastic: false, schema: { type: "object", properties: {} } },
  { name: "static_partition", title: "Static partition", description: "The cluster in n equal parts, one job each.", elastic: false, schema: { type: "object", properties: { n: { type: "integer", title: "Parts", minimum: 1, default: 4 } } } },
];

const TYPES = [
  { name: "h200", title: "H200", count: 16, memory_mib: 144_384, price_per_gpu_hour: "3.80", currency: "USD", emulated: false },
  { name: "l40s", title: "L40S", count: 16, memory_mib: 49_152, price_per_gpu_hour: "1.10", currency: "USD", emulated: false },
];

const AT = new Date().toISOString();
const DESTINATION = { id: 1, name: "ends", kind: "webhook", address: "https://ci.example.org", events: ["job.succeeded", "job.failed", "job.waiting"], own_jobs: true, project: null, waiting_minutes: 60, enabled: true, disabled_why: "", failing_since: null, failures: 0, delivered_at: AT, created_at: AT };
const DELIVERY = { id: 1, message: "msg_0199a6f23c417b529d0e5a1f6c2b7e90", event: "job.failed", text: "#2418 resnet-night failed: The program ended with exit code 1.", status: "delivered", attempts: 2, created_at: AT, next_attempt_at: null, finished_at: AT, answer_code: 200, answer: "ok", error: "" };

/** Streams leave out what is null, since a merge patch could not say it. */
export function streamState(stream: string, now: number): unknown {
  const state: unknown = stream === "cluster" ? clusterState(now) : projectState(stream.slice("project:".length), now);
  return withoutNulls(JSON.parse(JSON.stringify(state)));
}

function withoutNulls(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(withoutNulls);
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(Object.entries(value).filter(([, entry]) => entry !== null).map(([key, entry]) => [key, withoutNulls(entry)]));
}

function session() {
  const me = { id: 1, email: "ana@example.org", name: "Ana Lindqvist", is_admin: process.env.EVENKEEL_MOCK_MEMBER !== "1" };
  return {
    user: signedIn ? me : null, projects: signedIn ? PROJECTS.map((project) => ({ ...project, role: "manager" })) : [], more_projects: false, cluster: { name: "north", nodes: 4, gpus: 32 },
    single_trust_mode: true, emulated: true, speedup: 1, currency: "USD", version: "0.1.0",
  };
}

async function bodyOf(request: IncomingMessage): Promise<string> {
  let text = "";
  for await (const chunk of request) text += String(chunk);
  return text;
}

interface Answer {
  status?: number;
  body: unknown;
}

const problem = (status: number, detail: string, errors: unknown[] = []): Answer => ({ status, body: { type: "about:blank", title: detail, status, detail, errors } });

function listJobs(query: URLSearchParams, now: number): Answer {
  const wanted = (query.get("state") ?? "").split(",").filter(Boolean).concat(query.getAll("state").slice(1));
  const search = (query.get("search") ?? "").toLowerCase();
  const cursor = Number(query.get("cursor") ?? 0);
  const all = [...jobs.values()].filter((job) => (wanted.length === 0 || wanted.includes(job.state)) && (!search || job.name.includes(search) || String(job.number).includes(search))).sort((a, b) => b.number - a.number);
  const page = all.slice(cursor, cursor + 15);
  query.set("cursor", String(cursor + 15));
  return { body: { next: cursor + 15 < all.length ? `http://127.0.0.1:5173/api/v1/jobs?${query}` : null, previous: null, results: page.map((job) => jobJson(job, now)) } };
}

function submit(text: string): Answer {
  const given = text.trimStart().startsWith("{") ? (JSON.parse(text) as Record<string, unknown>) : Object.fromEntries(text.split("\n").map((line) => line.split(/:\s*/, 2)));
  if (String(given.name ?? "").includes(" ")) return problem(400, "The job file has a mistake.", [{ field: "name", message: "A name has letters, digits and dashes.", code: "invalid" }, { field: "gpus.max", message: "Vision may hold 12 GPUs.", code: "quota" }]);
  const now = Date.now();
  const number = Math.max(...jobs.keys()) + 1;
  const model = jobs.get(2418) as MockJob;
  const job: MockJob = { ...structuredClone(model), number, name: String(given.name), project: String(given.project), step: 0, gpus: [], state: "queued", started: null, finished: null, submitted: now, cost: 0, reason: "Submitted just now; the next round considers it.", history: [], allocations: [], rescales: [], epoch: 0, states: [{ state: "WAITING_FOR_INITIAL_RESOURCE", coarse: "queued", from: now, to: null }] };
  jobs.set(number, job);
  say(now, "submitted", "submitted by Ana Lindqvist.", job);
  return { status: 201, body: jobJson(job, now) };
}

/** Of the model job's program on one GPU; the limit refuses whoever asks for more than twelve. */
function estimate(text: string): Answer {
  const given = JSON.parse(text) as { total_steps?: number; project?: string; gpus?: { min?: number } };
  const steps = Number(given.total_steps);
  if (!(steps > 0)) return problem(400, "The job file has a mistake.", [{ field: "total_steps", message: "Give a number of steps, at least 1.", code: "invalid" }]);
  const gpus = given.gpus?.min ?? 1;
  const seconds = steps / (8 * gpus);
  const cost = (seconds / 3600) * gpus * 1.6;
  const price = { per_gpu_hour: "2.000000", per_cpu_hour: "0", per_gib_hour: "0", discount_percent: "20" };
  const option = { type: "h200", gpus, steps_per_s: 8 * gpus, source: "measured", age_s: 60, samples: 9, duration_s: seconds, price, rate_per_hour: String(1.6 * gpus), amount: cost.toFixed(6), low: (cost * 0.9).toFixed(6), high: (cost * 1.1).toFixed(6), basis: `${steps} steps at ${8 * gpus} steps/s` };
  const refused = gpus > 12 ? [`The limit of 12 GPUs at once on project Vision (6 in use) can never hold this job, which needs ${gpus}.`] : [];
  return { body: { currency: "USD", project: given.project ?? "vision", options: [option], low: option.low, high: option.high, basis: "", discount: { percent: "20", project: "vision", name: "Vision" }, jobs: 1, refused_by: refused, waits_for: [] } };
}

function jobRoute(parts: string[], query: URLSearchParams, now: number): Answer {
  const job = jobs.get(Number(parts[1]));
  if (!job) return problem(404, "There is no such job.");
  if (parts[2] === undefined) return { body: jobDetail(job, now) };
  if (parts[2] === "cancel") {
    enter(job, now, "CANCELLED", "cancelled");
    job.finished = now;
    release(job, now);
    say(now, "CANCEL", "cancelled by Ana Lindqvist.", job);
    return { body: jobJson(job, now) };
  }
  return { body: part(job, parts[2], query, now) };
}

const HELD = { gpus_held: 6, jobs_running: 3, jobs_queued: 1, spend_month: "2310.00" };

async function answer(request: IncomingMessage, path: string, query: URLSearchParams): Promise<Answer> {
  const now = Date.now();
  const parts = path.split("/");
  const method = request.method ?? "GET";
  const text = method === "GET" ? "" : await bodyOf(request);
  if (path === "session") {
    if (method === "POST" && (JSON.parse(text) as { password: string }).password === "wrong") return problem(400, "Email and password do not match.");
    if (method !== "GET") signedIn = method === "POST";
    return method === "DELETE" ? { status: 204, body: null } : { body: session() };
  }
  if (path === "jobs") return method === "POST" ? submit(text) : listJobs(query, now);
  if (path === "jobs/estimate") return estimate(text);
  if (parts[0] === "jobs") return jobRoute(parts, query, now);
  if (parts[0] === "live") {
    const stream = decodeURIComponent(parts[1] ?? "");
    return { body: { stream, seq: seqs.get(stream) ?? 0, state: streamState(stream, now) } };
  }
  if (path === "policy" && method === "PUT") policy = { ...policy, ...(JSON.parse(text) as { name: string; parameters: Record<string, unknown> }), changed_at: new Date(now).toISOString(), changed_by: "Ana Lindqvist", can_undo: true };
  if (path === "tokens" && method === "POST") {
    const made = { id: Date.now(), name: (JSON.parse(text) as { name: string }).name, prefix: "ek_1b9c", created_at: new Date(now).toISOString(), expires_at: null, last_used_at: null };
    tokens.push(made);
    return { status: 201, body: { ...made, secret: "ek_1b9c_q5m7xkt2v8hncd4w9yzr3bfj6pgslae0" } };
  }
  if (parts[0] === "tokens" && method === "DELETE") {
    tokens.splice(tokens.findIndex((token) => String(token.id) === parts[1]), 1);
    return { status: 204, body: null };
  }
  if (path === "notifications/destinations/1/test") return { body: { ...DELIVERY, event: "test", text: "This is a test of the destination ends. It works." } };
  const fixed: Record<string, () => unknown> = {
    views: () => ({ next: null, previous: null, results: [] }), templates: () => ({ next: null, previous: null, results: [] }),
    timeline: () => timeline(query, now), history: () => history(now), events: () => ({ next: null, previous: null, results: events.map(eventJson) }),
    "model-types": () => MODELS, "accelerator-types": () => TYPES, policies: () => POLICIES, policy: () => policy, "policy/undo": () => policy, tokens: () => tokens,
    "notifications/destinations": () => ({ next: null, previous: null, email_available: true, results: [DESTINATION] }),
    "notifications/destinations/1/deliveries": () => ({ next: null, previous: null, results: [DELIVERY] }),
    "policy/history": () => [{ id: 1, name: "f_scheduling", parameters: { v_bound: 0.06 }, changed_at: new Date(now - 9e6).toISOString(), changed_by: "R. Haddad" }],
    projects: () => ({ next: null, previous: null, results: query.get("archived") === "true" ? [] : PROJECTS.map((project) => ({ ...project, role: "manager", parent: null, archived_at: null, members: 4, gpu_quota: 12, budget_month: "5000", ...HELD, with_below: HELD })) }),
  };
  const found = fixed[path];
  return found ? { body: found() } : problem(404, "There is no such address.");
}

export async function handle(request: IncomingMessage, response: ServerResponse): Promise<void> {
  const url = new URL(request.url ?? "/", "http://localhost");
  const result = await answer(request, url.pathname.replace("/api/v1/", "").replace(/\/$/, ""), url.searchParams);
  response.statusCode = result.status ?? 200;
  response.setHeader("Content-Type", result.status && result.status >= 400 ? "application/problem+json" : "application/json");
  response.end(result.status === 204 ? undefined : JSON.stringify(result.body));
}
