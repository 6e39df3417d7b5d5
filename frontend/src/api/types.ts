export type CoarseState = "queued" | "starting" | "running" | "rescaling" | "succeeded" | "failed" | "cancelled";

export interface Page<T> {
  next: string | null;
  previous: string | null;
  results: T[];
}

export interface Session {
  user: { id: string | number; email: string; name: string; is_admin: boolean } | null;
  projects: { key: string; name: string; role: string }[];
  cluster: { name: string; nodes: number; gpus: number };
  single_trust_mode: boolean;
  emulated: boolean;
  speedup: number;
  currency: string;
  version: string;
}

export interface GpuRef {
  node: string;
  index: number;
}

export interface Job {
  id: string;
  number: number;
  name: string;
  project: { key: string; name: string };
  owner: { name: string; email: string };
  state: CoarseState;
  run_state: string | null;
  reason: { token: string; text: string } | null;
  model_type: string | null;
  command: string | null;
  total_steps: number;
  step: number;
  progress: number;
  batch_size: number | null;
  gpus: { min: number; max: number; types: string[] };
  priority: number;
  restartable: boolean;
  labels: Record<string, string>;
  emulated: boolean;
  pace_missed: boolean;
  allocation: { type: string; count: number; epoch: number; gpus: GpuRef[] } | null;
  throughput: {
    steps_per_s: number | null;
    predicted_steps_per_s: number | null;
    source: string | null;
    age_s: number | null;
    samples: number | null;
  } | null;
  relative_throughput: number | null;
  slowdown: number | null;
  protected_until_at: string | null;
  submitted_at: string;
  started_at: string | null;
  finished_at: string | null;
  expected_end_at: string | null;
  expected_end_low_at: string | null;
  expected_end_high_at: string | null;
  queue_position: number | null;
  cost: { so_far: string; estimated: string | null; currency: string } | null;
  times: { queueing_s: number; launching_s: number; running_s: number };
  rescales: number;
  run: { id: string; attempt: number; epoch: number } | null;
  exit: { reason: string; message: string; exit_code: number | null; signal: number | null } | null;
  can_cancel: boolean;
}

export interface Run {
  id: string;
  attempt: number;
  state?: string;
  epoch?: number;
  started_at?: string | null;
  finished_at?: string | null;
  exit?: Job["exit"];
}

export interface Checkpoint {
  step: number;
  path?: string;
  bytes: number | null;
  seconds?: number | null;
  at: string;
}

export interface Curve {
  steps_per_s: number[];
  source?: string | null;
  age_s?: number | null;
  samples?: number | null;
}

export interface JobSpec {
  [key: string]: unknown;
}

export interface JobDetail extends Job {
  spec: JobSpec;
  runs: Run[];
  checkpoints: Checkpoint[];
  curve: Record<string, Curve | number[]> | null;
}

export interface Event {
  id: string | number;
  at: string;
  kind: string;
  job: { number: number; name: string | null } | null;
  project: string | null;
  text: string;
  detail?: Record<string, unknown>;
}

export interface LogChunk {
  rank: number;
  ranks: number[];
  offset: number;
  next_offset: number;
  size: number;
  text: string;
  complete: boolean;
}

export interface Metrics {
  series: Record<string, [string, number, number][]>;
  names: string[];
  predicted_steps_per_s: [string, number][];
}

export interface JobTimeline {
  states: { state: string; coarse: CoarseState; from_at: string; to_at: string | null }[];
  allocations: { epoch: number; type: string; count: number; gpus: GpuRef[]; from_at: string; to_at: string | null }[];
  rescales: { at: string; before: number; after: number }[];
}

export interface JobCost {
  currency: string;
  so_far: string;
  estimated: string | null;
  estimated_low: string | null;
  estimated_high: string | null;
  basis: string | null;
  gpu_hours: number | string;
  rate_per_gpu_hour: string | null;
  rate_per_hour: string | null;
  by_type: { type: string; gpu_hours: number | string; amount: string }[];
  lost_to_restarts: string | null;
}

export interface Explanation {
  token: string;
  text: string;
  at: string | null;
  round: number | null;
  ahead: { number: number; name: string | null; project: string; gpus: number; state: CoarseState }[];
  weighed: { number: number; name: string | null; gain_steps_per_s: number | null; variance: number | null }[];
  would_change: string | null;
  detail: Record<string, unknown>;
}

export type HoldKind = "launching" | "protected" | "running" | "moving";

export interface Hold {
  node: string;
  index: number;
  job: { number: number; name: string | null; project: string };
  epoch: number;
  count: number;
  from_at: string;
  to_at: string | null;
  kind: HoldKind;
}

export interface ClusterTimeline {
  from_at: string;
  to_at: string;
  nodes: { name: string; type: string; gpus: number; emulated: boolean }[];
  holds: Hold[];
  rescales: { number: number; at: string; before: number; after: number }[];
}

export interface History {
  points: { at: string; utilisation: number | null; queued: number; variance: number | null; spend_per_hour: string | number | null }[];
}

export interface ModelType {
  name: string;
  title: string;
  description: string;
  default_batch_size: number | null;
  curves: Record<string, Curve>;
  runs_seen: number;
}

export interface AcceleratorType {
  name: string;
  title: string;
  count: number;
  memory_mib: number | null;
  price_per_gpu_hour: string | null;
  currency: string;
  emulated: boolean;
}

export interface Project {
  key: string;
  name: string;
  role: string;
  gpu_quota: number | null;
  gpus_held: number;
  jobs_running: number;
  jobs_queued: number;
  spend_month: string | null;
}

export interface JsonSchema {
  type?: string;
  title?: string;
  description?: string;
  default?: unknown;
  enum?: (string | number)[];
  minimum?: number;
  maximum?: number;
  exclusiveMinimum?: number;
  anyOf?: JsonSchema[];
  properties?: Record<string, JsonSchema>;
  required?: string[];
}

export interface PolicyInfo {
  name: string;
  title: string;
  description: string;
  schema: JsonSchema;
  elastic: boolean;
}

export interface PolicyInForce {
  name: string;
  parameters: Record<string, unknown>;
  changed_at: string | null;
  changed_by: string | { name: string; email: string } | null;
  effective_round: number | null;
  can_undo: boolean;
  notes: string[];
}

export interface PolicyChange {
  id?: string | number;
  name: string;
  parameters: Record<string, unknown>;
  changed_at: string;
  changed_by: string | { name: string; email: string } | null;
}

export interface ApiToken {
  id: string | number;
  name: string;
  prefix: string;
  created_at: string;
  expires_at: string | null;
  last_used_at: string | null;
  secret?: string;
  token?: string;
}

export interface AcceleratorState {
  job: number | null;
  state: "free" | "held" | "assigned" | "draining";
  kind?: HoldKind | null;
  utilisation?: number | null;
}

export interface NodeState {
  type: string;
  gpus: number;
  emulated: boolean;
  schedulable: boolean;
  lost: boolean;
  accelerators: Record<string, AcceleratorState>;
  price_per_hour: string | null;
  free_reason?: string | null;
}

export interface ClusterState {
  cluster: {
    name: string;
    speedup: number;
    currency: string;
    round: number | null;
    policy: { name: string; parameters: Record<string, unknown>; v_bound: number | null };
    last_event_at: string | null;
  };
  tiles: {
    utilisation: number | null;
    gpus_total: number;
    gpus_busy: number;
    queued: number;
    oldest_wait_since_at: string | null;
    variance: number | null;
    v_bound: number | null;
    spend_per_hour: string | null;
    spend_month: string | null;
    budget_month: string | null;
    running: number;
    mean_relative_throughput: number | null;
    relative_throughputs: number[];
  };
  nodes: Record<string, NodeState>;
  jobs: Record<string, { number: number; project: string; state: CoarseState; gpus: number }>;
  queue: number[];
  events: Record<string, Event>;
}

export interface ProjectState {
  project: { key: string; name: string; gpu_quota: number | null; gpus_held: number };
  jobs: Record<string, Job>;
  events: Record<string, Event>;
}

export interface ProblemDocument {
  type?: string;
  title?: string;
  status: number;
  detail?: string;
  errors?: { field: string; message: string; code?: string }[];
}
