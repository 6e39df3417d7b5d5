"""Takes the snapshot of a cluster that a round plans from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from accounts.ledger import current_prices
from portal.accounting import quota_usage
from portal.jobs.access import in_states
from portal.jobs.clusters import speedup
from portal.jobs.engine_names import engine_name
from portal.jobs.loops import Loop, LoopName, of_job, postponed_in
from portal.jobs.models import Accelerator, Assignment, Cluster, Hold, Job
from portal.snapshot import engine_jobs
from portal.snapshot.dependencies import waits_of
from portal.snapshot.for_policy import complete
from portal.snapshot.guarantees import guarantees_of_projects
from portal.snapshot.rows import gpus_by_run, job_row, nodes_of, partitions_of, project_tree, qos_levels
from portal.snapshot.run_version import RunVersion
from portal.snapshot.shares import held_now
from portal.snapshot.site_limits import SiteLimits
from portal.snapshot.windows import windows_of
from portal.throughput.job_profiles import job_profiles
from scheduling import domain
from scheduling.lifecycle import LIVE, WAITING, State
from scheduling.policies import load_policy
from scheduling.policies.capabilities import Needs
from scheduling.solvers.budget import CLOCK


@dataclass(frozen=True)
class ClusterView:
    """A snapshot with what is needed to commit a plan of it."""

    cluster: Cluster
    snapshot: domain.Snapshot
    seen: Mapping[str, RunVersion]


def live_jobs(cluster_id: int) -> list[Job]:
    """Jobs with a live run, each with its run, project and program; in the order of stored decisions, so that a
    replayed round has the same ledger."""
    jobs = Job.objects.filter(in_states(LIVE), cluster_id=cluster_id).order_by("number")
    return list(jobs.select_related("run").prefetch_related("project", "model_type", "qos", "array"))


def take_snapshot(cluster: Cluster, now: datetime) -> ClusterView:
    """Snapshot of one cluster at `now`; its size grows with nodes and live jobs only. A job that cannot be read is left
    out, and keeps its GPUs."""
    loop = Loop(LoopName.SNAPSHOT, cluster.pk)
    return loop.most(jobs_to_plan(loop, cluster), of_job, lambda jobs: snapshot_of(cluster, now, jobs))


def jobs_to_plan(loop: Loop, cluster: Cluster) -> list[Job]:
    """Live jobs without those for which a round failed a moment ago."""
    failing = postponed_in(LoopName.MOVES, LoopName.LAUNCH)
    return [
        job
        for job in loop.due(live_jobs(cluster.pk), of_job)
        if not (failing and str(job.pk) in failing and job.run and State(job.run.state) in WAITING)
    ]


def snapshot_of(cluster: Cluster, now: datetime, given: Sequence[Job]) -> ClusterView:
    """Of these jobs; GPUs of other jobs cannot be assigned."""
    nodes, jobs = nodes_of(cluster), list(given)
    assigned = gpus_by_run(Assignment, cluster)
    held = gpus_by_run(Hold, cluster)
    types: Counter[str] = Counter()
    for node in nodes:
        types[node.type] += len(node.gpu_ids)
    # Of all accelerators: a job may still be on one that its node no longer reports.
    everywhere = Accelerator.objects.filter(node__cluster=cluster)
    kind_of = dict(everywhere.values_list("pk", "node__accelerator_type"))
    known = job_profiles(jobs, types)
    site = SiteLimits(cluster)
    limits, bound = site.added_to(*quota_usage.limits_of(jobs, cluster, now), jobs)
    policy = load_policy(cluster.policy_name, cluster.policy_parameters)
    needs = policy.capabilities.needs
    guarantees = guarantees_of_projects()
    holds = held_now(cluster) if Needs.FAIR_SHARE in needs or guarantees else {}
    waits = waits_of(cluster.pk)
    partitions, name_of = partitions_of(cluster, nodes)
    views = tuple(
        job_row(job, known[job.pk], assigned.get(job.run_id, ()), kind_of, bound.get(job.pk, ()), holds, waits, name_of)
        for job in jobs
    )
    views = site.bounded(views, jobs, nodes)
    # Exiting processes occupy GPUs that their run no longer plans to use: they cannot be assigned yet.
    planned = {gpu for view in views for gpu in view.gpu_ids}
    blocked = frozenset(gpu for gpus in (*held.values(), *assigned.values()) for gpu in gpus) - planned
    theirs = engine_jobs.taken_gpus([cluster.pk])
    snapshot = domain.Snapshot(
        now=now.timestamp(),
        nodes=nodes,
        jobs=views,
        seed=cluster.round_epoch,
        memory=cluster.policy_memory,
        limits=limits,
        guarantees=guarantees,
        entities=project_tree(cluster.name),
        qos=qos_levels(),
        partitions=partitions,
        constraints=site.constraints(jobs),
        windows=windows_of(cluster.pk, nodes, now),
        prices={kind: price / 10**6 for kind, price in current_prices(now, cluster.name).items()},
        blocked_gpu_ids=blocked | theirs.keys(),
        others=domain.Others(theirs, engine_name(cluster)) if theirs else domain.Others(),
        settings={"speedup": speedup(cluster.pk), CLOCK: True},
    )
    seen = {
        str(job.pk): RunVersion(job.run.pk, State(job.run.state), job.run.epoch, job.project_id)
        for job in jobs
        if job.run
    }
    return ClusterView(cluster, complete(snapshot, cluster, needs, jobs), seen)
