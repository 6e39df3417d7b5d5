"""Rows -> scheduling.domain: the frozen view of one round."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any

from accounts.models import ClusterShare, Project
from portal.jobs.job_deadline import deadline_of
from portal.jobs.models import Accelerator, Assignment, Cluster, Hold, Job, Node, Partition, Qos
from portal.jobs.models.service_level import PreemptMode
from portal.snapshot import engine_jobs
from portal.snapshot.dependencies import Waits
from portal.snapshot.shares import Held, user_key
from portal.throughput import profiles
from portal.throughput.job_profiles import job_profiles
from scheduling import domain
from scheduling.lifecycle import State
from scheduling.throughput.curves import Profile

logger = logging.getLogger(__name__)


def nodes_of(cluster: Cluster) -> tuple[domain.Node, ...]:
    gpus: dict[int, list[int]] = defaultdict(list)
    memory: dict[int, int] = {}
    present = Accelerator.objects.filter(node__cluster=cluster, present=True).order_by("index")
    for pk, node_id, mib in present.values_list("pk", "node_id", "memory_mib"):
        gpus[node_id].append(pk)
        memory[node_id] = min(filter(None, (mib, memory.get(node_id))), default=0)  # 0: unknown
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
            others=engine_jobs.beside(node),
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
    """Jobs as rounds see them, as far as that does not depend on other jobs. `gpus`: by run."""
    known = job_profiles(jobs, types)
    return [job_row(job, known[job.pk], gpus.get(job.run_id, ()), kind_of, (), {}, Waits(), {}) for job in jobs]


def gpus_by_run(model: type[Assignment] | type[Hold], cluster: Cluster) -> dict[Any, tuple[int, ...]]:
    rows = model.objects.filter(run__job__cluster=cluster, during__upper_inf=True)
    gpus: dict[Any, list[int]] = defaultdict(list)
    for run_id, accelerator_id in rows.order_by("accelerator_id").values_list("run_id", "accelerator_id"):
        gpus[run_id].append(accelerator_id)
    return {run_id: tuple(ids) for run_id, ids in gpus.items()}


@lru_cache(maxsize=4096)
def _shared(curves: tuple[tuple[str, domain.Curve], ...]) -> Mapping[str, domain.Curve]:
    """One mapping for all jobs with the same curves, also in later rounds: memos of policies compare by identity."""
    return dict(curves)


def job_row(
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
    """The part of the job's max_duration left for this run, as far as it was counted."""
    given = job.max_duration_s
    return None if given is None or job.run is None else max(0.0, given - job.run.running_s)


#: Time between a written checkpoint and the processes' end, until it is measured per run.
_STOP_S = 1.0


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
    """(partitions by name with their nodes, names by id; the default one's under None)."""
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
