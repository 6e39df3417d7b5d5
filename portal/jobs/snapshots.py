"""Rows -> scheduling.domain: the frozen view of one round."""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache
from typing import Any

from accounts.ledger import current_prices
from accounts.models import ClusterShare, Project
from portal.core import job_log
from portal.jobs import others, profiles, quota_use
from portal.jobs.application_profiles import with_histories
from portal.jobs.clusters import speedup
from portal.jobs.dependencies import Waits, waits_of
from portal.jobs.engine_names import engine_name
from portal.jobs.guarantees import guarantees_of_projects
from portal.jobs.loops import Loop, LoopName, of_job, resting_in
from portal.jobs.models import Accelerator, Assignment, Cluster, Hold, Job, Node, Partition, Qos
from portal.jobs.models.service_level import PreemptMode
from portal.jobs.pairs import pairs_for
from portal.jobs.selectors import in_states
from portal.jobs.services.plans import Seen
from portal.jobs.shares import Held, held_now, share_inputs, site_factors, user_key
from portal.jobs.site_limits import SiteLimits
from portal.jobs.windows import windows_of
from scheduling import domain
from scheduling.lifecycle import LIVE, WAITING, State
from scheduling.policies import load_policy
from scheduling.solvers.budget import CLOCK
from scheduling.throughput.curves import Number, Profile

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class ClusterView:
    """A snapshot with what is needed to commit a plan made from it."""

    cluster: Cluster
    snapshot: domain.Snapshot
    seen: Mapping[str, Seen]


def live_jobs(cluster_id: int) -> list[Job]:
    """Jobs with a live run, each with its run, project and program; in the order in which decisions keep them, so that
    a round that is planned again has the same ledger."""
    jobs = Job.objects.filter(in_states(LIVE), cluster_id=cluster_id).order_by("number")
    return list(jobs.select_related("run").prefetch_related("project", "model_type", "qos", "array"))


def take_snapshot(cluster: Cluster, now: datetime) -> ClusterView:
    """All of one cluster at `now`; its size grows with nodes and live jobs only. A job that cannot be read is left
    out, and keeps what it has."""
    loop = Loop(LoopName.SNAPSHOT, cluster.pk)
    return loop.most(jobs_to_plan(loop, cluster), of_job, lambda jobs: snapshot_of(cluster, now, jobs))


def jobs_to_plan(loop: Loop, cluster: Cluster) -> list[Job]:
    """Live jobs without those that rounds failed at a moment ago."""
    failing = resting_in(LoopName.MOVES, LoopName.LAUNCH)
    return [
        job
        for job in loop.due(live_jobs(cluster.pk), of_job)
        if not (failing and str(job.pk) in failing and job.run and State(job.run.state) in WAITING)
    ]


def snapshot_of(cluster: Cluster, now: datetime, given: Sequence[Job]) -> ClusterView:
    """Of these jobs; what others have is nobody's."""
    nodes, jobs = nodes_of(cluster), list(given)
    assigned = _gpus_by_run(Assignment, cluster)
    held = _gpus_by_run(Hold, cluster)
    types: Counter[str] = Counter()
    for node in nodes:
        types[node.type] += len(node.gpu_ids)
    # Of all accelerators: a job may still be on one that its node no longer reports.
    everywhere = Accelerator.objects.filter(node__cluster=cluster)
    kind_of = dict(everywhere.values_list("pk", "node__accelerator_type"))
    known = job_profiles(jobs, types)
    site = SiteLimits(cluster)
    limits, bound = site.added_to(*quota_use.limits_of(jobs, cluster, now), jobs)
    policy = load_policy(cluster.policy_name, cluster.policy_parameters)
    fair = share_inputs(now) if getattr(policy, "fair_share", False) else None
    guarantees = guarantees_of_projects()
    holds = held_now(cluster) if fair or guarantees else {}
    waits = waits_of(cluster.pk)
    partitions, name_of = partitions_of(cluster, nodes)
    views = tuple(
        _job(job, known[job.pk], assigned.get(job.run_id, ()), kind_of, bound.get(job.pk, ()), holds, waits, name_of)
        for job in jobs
    )
    views = site.bounded(views, jobs, nodes)
    # Processes that still leave occupy GPUs which their run no longer plans to use: nobody may have them yet.
    planned = {gpu for view in views for gpu in view.gpu_ids}
    blocked = frozenset(gpu for gpus in (*held.values(), *assigned.values()) for gpu in gpus) - planned
    theirs = others.taken_gpus([cluster.pk])
    packs = getattr(policy, "packs", False)
    if getattr(policy, "reads_histories", False):
        views = with_histories(views, jobs)
    snapshot = domain.Snapshot(
        now=now.timestamp(),
        nodes=nodes,
        jobs=views,
        seed=cluster.round_epoch,
        memory=cluster.policy_memory,
        limits=limits,
        guarantees=guarantees,
        pairs=pairs_for([view for view in views if not view.held], types, cluster.pk) if packs else {},
        entities=project_tree(cluster.name),
        qos=qos_levels(),
        partitions=partitions,
        constraints=site.constraints(jobs),
        windows=windows_of(cluster.pk, nodes, now),
        prices={kind: price / 10**6 for kind, price in current_prices(now, cluster.name).items()},
        members=fair.members if fair else {},
        usage=fair.usage if fair else {},
        usage_at=fair.usage_at if fair else 0.0,
        site_factors=site_factors(cluster, fair, views) if fair else {},
        blocked_gpu_ids=blocked | theirs.keys(),
        others=domain.Others(theirs, engine_name(cluster)) if theirs else domain.Others(),
        settings={"speedup": speedup(cluster.pk), CLOCK: True},
    )
    seen = {
        str(job.pk): Seen(job.run.pk, State(job.run.state), job.run.epoch, job.project_id) for job in jobs if job.run
    }
    return ClusterView(cluster, snapshot, seen)


def arrivals_of(cluster: Cluster, nodes: Iterable[domain.Node], most: int) -> list[domain.Job]:
    """The newest jobs, whatever became of them, with nothing held and nothing to wait for."""
    rows = Job.objects.filter(cluster=cluster, run__isnull=False).order_by("-number")
    jobs = list(rows.select_related("run").prefetch_related("project", "model_type", "qos", "array")[:most])
    known = job_profiles(jobs, Counter(node.type for node in nodes for _ in node.gpu_ids)) if jobs else {}
    _, name_of = partitions_of(cluster, nodes)
    return [_job(job, known[job.pk], (), {}, (), {}, Waits(), name_of) for job in jobs]


def newcomers_of(
    jobs: Sequence[Job], cluster: Cluster, base: domain.Snapshot, waits: Waits, now: datetime, *, packs: bool
) -> tuple[tuple[domain.Job, ...], domain.Snapshot]:
    """Jobs that are not stored, as they would come into the queue of `base`, and it with what they bring along.

    They are alike: what is known of the first one's throughput is known of all. `packs`: the policy shares GPUs.
    """
    types = Counter(node.type for node in base.nodes for _ in node.gpu_ids)
    known = job_profiles(list(jobs[:1]), types)[jobs[0].pk]
    site = SiteLimits(cluster)
    limits, bound = site.added_to(*quota_use.limits_of(jobs, cluster, now), jobs)
    _, name_of = partitions_of(cluster, base.nodes)
    found = tuple(
        replace(
            _job(job, known, (), {}, bound.get(job.pk, ()), {}, waits, name_of),
            state=State.WAITING_FOR_INITIAL_RESOURCE,
            submitted_at=base.now,
        )
        for job in jobs
    )
    found = site.bounded(found, jobs, base.nodes)
    pairs = pairs_for([job for job in (*base.jobs, *found) if not job.held], types, cluster.pk) if packs else {}
    asked = {**base.constraints, **site.constraints(jobs)}
    return found, replace(base, limits={**base.limits, **limits}, constraints=asked, pairs=pairs)


def job_profiles(jobs: list[Job], types: Mapping[str, int]) -> dict[Any, dict[str, Profile]]:
    """Curves per job, with the measured numbers of all of them in one query."""
    measurable = [job for job in jobs if job.model_type_id or job.run is None or job.run.has_a_past]
    measured = _measured(measurable)
    known = {}
    for job in jobs:
        try:
            known[job.pk] = profiles.profiles_of(job, types, measured)
        except Exception:
            # One job's unreadable curves must stop neither the rounds nor the streams of all others.
            logger.exception("the throughput of job %s cannot be read", job.pk, extra=job_log.of_job(job))
            known[job.pk] = {}
    return known


def _measured(jobs: list[Job]) -> dict[tuple[str, int, str], dict[int, Number]]:
    """All jobs are of one cluster."""
    names = {name for job in jobs for name in profiles.workloads_of(job)}
    return profiles.measured_numbers(names, jobs[0].cluster_id) if jobs else {}


def nodes_of(cluster: Cluster) -> tuple[domain.Node, ...]:
    gpus: dict[int, list[int]] = defaultdict(list)
    memory: dict[int, int] = {}
    present = Accelerator.objects.filter(node__cluster=cluster, present=True).order_by("index")
    for pk, node_id, mib in present.values_list("pk", "node_id", "memory_mib"):
        gpus[node_id].append(pk)
        memory[node_id] = min(filter(None, (mib, memory.get(node_id))), default=0)  # 0: not known
    return tuple(
        domain.Node(
            name=node.name,
            type=node.accelerator_type,
            gpu_ids=tuple(gpus[node.pk]),
            schedulable=node.schedulable,
            lost=node.lost,
            emulated=node.emulated,
            drain=drain_of(node),
            withheld=node.withheld,
            cpu_milli=1_000 * node.cpus or None,
            memory_mib=node.memory_mib or None,
            gpu_memory_mib=memory[node.pk] or None,
            others=others.beside(node),
            boot_s=node.boot_s,
        )
        for node in sorted(cluster.nodes.all(), key=lambda node: node.boot_s > 0)  # of equals those that are up
        if gpus[node.pk]
    )


def drain_of(node: Node) -> domain.Drain | None:
    return domain.Drain(_posix(node.drain_deadline_at), node.drain_reason) if node.drained else None


def as_holding(
    jobs: list[Job], gpus: Mapping[Any, tuple[int, ...]], kind_of: Mapping[int, str], types: Mapping[str, int]
) -> list[domain.Job]:
    """Jobs as rounds see them, as far as that depends on nobody else. `gpus`: by run."""
    known = job_profiles(jobs, types)
    return [_job(job, known[job.pk], gpus.get(job.run_id, ()), kind_of, (), {}, Waits(), {}) for job in jobs]


def _gpus_by_run(model: type[Assignment] | type[Hold], cluster: Cluster) -> dict[Any, tuple[int, ...]]:
    rows = model.objects.filter(run__job__cluster=cluster, during__upper_inf=True)
    gpus: dict[Any, list[int]] = defaultdict(list)
    for run_id, accelerator_id in rows.order_by("accelerator_id").values_list("run_id", "accelerator_id"):
        gpus[run_id].append(accelerator_id)
    return {run_id: tuple(ids) for run_id, ids in gpus.items()}


@lru_cache(maxsize=4096)
def _shared(curves: tuple[tuple[str, domain.Curve], ...]) -> Mapping[str, domain.Curve]:
    """One mapping for all jobs with the same curves, also in later rounds: what policies work out from it, they know it
    by."""
    return dict(curves)


def _job(
    job: Job,
    known: Mapping[str, Profile],
    gpu_ids: tuple[int, ...],
    kind_of: Mapping[int, str],
    limits: tuple[str, ...],
    holds: Mapping[Any, Held],
    waits: Waits,
    partition_names: Mapping[int | None, str],
) -> domain.Job:
    run = job.run
    assert run is not None
    return domain.Job(
        id=str(job.pk),
        number=job.number,
        project=job.project.key,
        state=State(run.state),
        submitted_at=job.submitted_at.timestamp(),
        curves=_shared(tuple((kind, profile.curve) for kind, profile in known.items())),
        priority=job.priority,
        nice=job.spec.get("nice", 0),
        min_gpus=job.min_gpus,
        max_gpus=job.max_gpus,
        types=tuple(job.accelerator_types),
        remaining_steps=float(max(0, job.total_steps - run.step)),
        restartable=job.can_restart(run),
        resizable=run.uses_sdk is not False or not job.restartable,  # without steps no size is known to be better
        gpu_ids=gpu_ids,
        gang=domain.Gang(kind_of[gpu_ids[0]], len(gpu_ids)) if gpu_ids else None,
        has_trained=run.has_trained,
        launch_s=run.launch_s,
        checkpoint_s=run.checkpoint_s,
        restart_cost_s=run.launch_s + run.checkpoint_s + _STOP_S if run.has_trained else 0.0,
        protected_until=_posix(run.protected_until),
        not_before=_posix(run.not_before),
        held=bool(job.hold_kind),
        limits=limits,
        workload=profiles.policy_workload(job),
        done_steps=float(run.step),
        deadline=_posix(deadline_of(job)),
        user=user_key(job.owner_id),
        eligible_at=waits.eligible_at(job.pk, job.eligible_at),
        waits_for=waits.sentence(job.pk),
        ran_s=run.running_s,
        held_since=holds[job.run_id].since if job.run_id in holds else None,
        time_limit_s=_time_limit_s(job),
        qos=job.qos.name if job.qos else "",
        partition=partition_names.get(job.partition_id, ""),
        gpu_milli=10 * job.gpu_share_percent,
        gpu_memory_mib=job.gpu_memory_mib,
        cpu_milli=1_000 * (job.spec.get("cpus") or 0),
        memory_mib=job.spec.get("memory") or 0,
    )


def _time_limit_s(job: Job) -> float | None:
    """What this run's training has left of the job's max_duration, as far as it was counted."""
    given = job.max_duration_s
    return None if given is None or job.run is None else max(0.0, given - job.run.running_s)


#: Between a written checkpoint and the processes' end, until it is measured per run.
_STOP_S = 1.0


def deadline_of(job: Job) -> datetime | None:
    given = job.spec.get("deadline")
    return datetime.fromisoformat(given) if given else None


def project_tree(cluster: str) -> dict[str, domain.Entity]:
    """With the weights that projects have on this cluster."""
    rows = Project.objects.values_list("key", "parent__key", "share_weight", "inner_rule", "priority")
    there = dict(ClusterShare.objects.filter(cluster=cluster).values_list("project__key", "weight"))
    return {key: domain.Entity(parent, there.get(key, weight), rule, own) for key, parent, weight, rule, own in rows}


def qos_levels() -> dict[str, domain.Qos]:
    rows = Qos.objects.prefetch_related("preempts")
    return {
        row.name: domain.Qos(
            row.priority,
            tuple(sorted(one.name for one in row.preempts.all())),
            cancelled_when_put_out=row.preempt_mode == PreemptMode.CANCEL,
        )
        for row in rows
    }


def partitions_of(
    cluster: Cluster, nodes: Iterable[domain.Node]
) -> tuple[dict[str, domain.Partition], dict[int | None, str]]:
    """(partitions by name with their nodes, names by id), under None the default one's."""
    rows = list(Partition.objects.filter(cluster=cluster))
    kinds = [(node.name, node.type) for node in nodes] if rows else []
    found = {
        row.name: domain.Partition(frozenset(name for name, kind in kinds if row.has(name, kind)), row.priority)
        for row in rows
    }
    names: dict[int | None, str] = {row.pk: row.name for row in rows}
    if cluster.default_partition_id in names:
        names[None] = names[cluster.default_partition_id]
    return found, names


def _posix(at: datetime | None) -> float | None:
    return at.timestamp() if at else None
