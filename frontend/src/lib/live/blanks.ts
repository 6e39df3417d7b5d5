import type { Job, LiveCluster, LiveJob } from "../../api/types";

/** Puts back the nulls that a stream leaves out, so that a live job reads like one that was fetched. */
export function fullJob(job: LiveJob): Job {
  return {
    ...job,
    cluster: { name: job.cluster.name, choice: job.cluster.choice ?? null },
    owner: job.owner ?? null,
    fetching: job.fetching ?? null,
    retry: job.retry ? { ...job.retry, at: job.retry.at ?? null, of: job.retry.of ?? null } : null,
    ending: job.ending ?? false,
    warnings: job.warnings ?? [],
    model_type: job.model_type ?? null,
    command: job.command ?? null,
    gpus: { ...job.gpus, max: job.gpus.max ?? null, memory_mib: job.gpus.memory_mib ?? null },
    allocation: job.allocation ?? null,
    throughput: {
      steps_per_s: job.throughput.steps_per_s ?? null,
      predicted_steps_per_s: job.throughput.predicted_steps_per_s ?? null,
      source: job.throughput.source ?? null,
      age_s: job.throughput.age_s ?? null,
      samples: job.throughput.samples,
    },
    deadline_at: job.deadline_at ?? null,
    max_cost: job.max_cost ?? null,
    qos: job.qos ?? null,
    array: job.array ?? null,
    partition: job.partition ?? null,
    max_duration_s: job.max_duration_s ?? null,
    reason: { ...job.reason, slurm: job.reason.slurm ?? null },
    hold: job.hold ? { ...job.hold, by: job.hold.by ?? null } : null,
    idle: job.idle ? { ...job.idle, release_at: job.idle.release_at ?? null, extended_until_at: job.idle.extended_until_at ?? null } : null,
    resubmit_of: job.resubmit_of ?? null,
    resumed_from: job.resumed_from ? { ...job.resumed_from, job: job.resumed_from.job ?? null } : null,
    relative_throughput: job.relative_throughput ?? null,
    slowdown: job.slowdown ?? null,
    protected_until_at: job.protected_until_at ?? null,
    started_at: job.started_at ?? null,
    finished_at: job.finished_at ?? null,
    expected_end_at: job.expected_end_at ?? null,
    expected_end_low_at: job.expected_end_low_at ?? null,
    expected_end_high_at: job.expected_end_high_at ?? null,
    queue_position: job.queue_position ?? null,
    expected_start: job.expected_start
      ? {
        p10_at: job.expected_start.p10_at ?? null,
        p50_at: job.expected_start.p50_at ?? null,
        p90_at: job.expected_start.p90_at ?? null,
        as_of: job.expected_start.as_of ?? null,
        basis: job.expected_start.basis ?? null,
        run_time: job.expected_start.run_time ?? null,
        outcomes: job.expected_start.outcomes,
        reason: job.expected_start.reason ?? null,
      }
      : null,
    cost: { ...job.cost, estimated: job.cost.estimated ?? null },
    exit: job.exit
      ? { reason: job.exit.reason ?? null, message: job.exit.message ?? null, exit_code: job.exit.exit_code ?? null, signal: job.exit.signal ?? null }
      : null,
  };
}

type Tiles = LiveCluster["tiles"];
type Nullable = "oldest_wait_since_at" | "variance" | "v_bound" | "mean_relative_throughput" | "budget_month";

export type FullTiles = Omit<Tiles, Nullable> & { [K in Nullable]: NonNullable<Tiles[K]> | null };
export type ClusterState = Omit<LiveCluster, "tiles"> & { tiles: FullTiles };

const clusters = new WeakMap<LiveCluster, ClusterState>();

export function fullCluster(state: LiveCluster): ClusterState {
  const known = clusters.get(state);
  if (known) return known;
  const { tiles } = state;
  const made: ClusterState = {
    ...state,
    nodes: state.nodes ?? {},
    jobs: state.jobs ?? {},
    events: state.events ?? {},
    queue: state.queue ?? [],
    tiles: {
      ...tiles,
      oldest_wait_since_at: tiles.oldest_wait_since_at ?? null,
      variance: tiles.variance ?? null,
      v_bound: tiles.v_bound ?? null,
      mean_relative_throughput: tiles.mean_relative_throughput ?? null,
      budget_month: tiles.budget_month ?? null,
    },
  };
  clusters.set(state, made);
  return made;
}
