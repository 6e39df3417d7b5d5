"""Partitions: managed by administrators, chosen by users when they submit a job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from django.db import transaction
from django.db.models import Count, Q, QuerySet

from accounts.audit import record_audit
from accounts.models import Project, User
from accounts.selectors import visible_projects
from portal.cluster.service_levels import may_use
from portal.core import wake
from portal.core.problems import FieldProblem, Problems
from portal.jobfile.resources import WHOLE_PERCENT, Gpus
from portal.jobfile.schema import JobFile
from portal.jobs.access import in_states
from portal.jobs.models import Accelerator, Cluster, Job, Node, Partition
from scheduling.lifecycle import LIVE

COLUMNS = ("priority", "nodes", "accelerator_types", "for_everybody", "max_gpus", "max_duration_s")
_SHOWN = 30


class PartitionInUse(Exception):
    def __init__(self, partition: Partition, jobs: int) -> None:
        super().__init__(f"{jobs} jobs of partition {partition.name} have not ended; change them or wait for them.")


def visible_partitions(user: User) -> QuerySet[Partition]:
    """Partitions that one of the user's projects may use; others are not disclosed."""
    rows = Partition.objects.prefetch_related("projects")
    if user.is_superuser:
        return rows
    chains = visible_projects(user).values_list("ancestry", flat=True)
    mine = {pk for chain in chains for pk in chain}
    return rows.filter(Q(for_everybody=True) | Q(projects__in=mine)).distinct()


@transaction.atomic
def set_partition(
    *,
    actor: User | None,
    cluster: Cluster,
    name: str,
    values: Mapping[str, Any],
    projects: Sequence[str],
    is_default: bool,
) -> tuple[Partition, bool]:
    """Create or change a partition: (partition, created). Raises Problems for the field."""
    cluster = Cluster.objects.select_for_update().get(pk=cluster.pk)
    allowed = {row.key: row for row in Project.objects.filter(key__in=projects)}
    problems = [FieldProblem("projects", f"{one!r} is no project", "unknown") for one in projects if one not in allowed]
    problems += unknown_nodes(cluster, values)
    if is_default and not values["for_everybody"]:
        text = "jobs that name no partition get this one, so it has to be for everybody"
        problems.append(FieldProblem("is_default", text, "restricted"))
    if problems:
        raise Problems(problems)
    partition, made = Partition.objects.update_or_create(
        cluster=cluster, name=name, defaults={key: values[key] for key in COLUMNS}
    )
    partition.projects.set(allowed.values())
    if is_default or cluster.default_partition_id == partition.pk:
        Cluster.objects.filter(pk=cluster.pk).update(default_partition=partition if is_default else None)
    detail = {**{key: values[key] for key in COLUMNS}, "projects": list(projects), "is_default": is_default}
    record_audit(actor=actor, action="partition.set", target=name, detail=detail)
    transaction.on_commit(wake.schedule_round)
    return partition, made


def unknown_nodes(cluster: Cluster, values: Mapping[str, Any]) -> list[FieldProblem]:
    """Problems of the `nodes` and `accelerator_types` of a set of nodes."""
    problems = []
    nodes = dict(Node.objects.filter(cluster=cluster).values_list("name", "accelerator_type"))
    for field, known in (("nodes", set(nodes)), ("accelerator_types", set(nodes.values()))):
        if wrong := [one for one in values[field] if one not in known]:
            there = ", ".join(sorted(known)[:_SHOWN]) or "none"
            problems.append(FieldProblem(field, f"{wrong[0]!r} is not in this cluster; there are {there}", "unknown"))
    if not values["nodes"] and not values["accelerator_types"]:
        problems.append(FieldProblem("nodes", "name nodes, accelerator types, or both", "required"))
    return problems


@transaction.atomic
def remove_partition(*, actor: User, partition: Partition) -> None:
    """Raises PartitionInUse while it has unfinished jobs; ended ones keep its name in their job file."""
    Cluster.objects.select_for_update().get(
        pk=partition.cluster_id
    )  # first, in the same order as rounds: their commit reads the default partition
    partition = Partition.objects.select_for_update().get(pk=partition.pk)
    jobs = Job.objects.filter(in_states(LIVE), partition=partition).count()
    if jobs:
        raise PartitionInUse(partition, jobs)
    Job.objects.filter(partition=partition).update(partition=None)
    record_audit(actor=actor, action="partition.remove", target=partition.name)
    partition.delete()
    transaction.on_commit(wake.schedule_round)


def choose_partition(project: Project, cluster: Cluster, name: str | None) -> Partition | None:
    """Where a job of the project runs; raises Problems if it may not use the partition that it names."""
    if name is None:
        return cluster.default_partition if cluster.default_partition_id else None
    partition = Partition.objects.filter(cluster=cluster, name=name).first()
    if partition is None or not may_use(project, partition):
        rows = Partition.objects.filter(cluster=cluster).prefetch_related("projects")
        mine = [one.name for one in rows if may_use(project, one)][:_SHOWN]
        there = f"{project.key} may use {', '.join(mine)}" if mine else f"{project.key} may use none"
        raise Problems([FieldProblem("partition", f"is no partition that it may use; {there}", "unknown")])
    return partition


def gpus_by_type(cluster_id: int, partition: Partition | None) -> dict[str, int]:
    return dict(gpus_in(cluster_id, partition).values_list("node__accelerator_type").annotate(count=Count("pk")))


def gpus_in(cluster_id: int, partition: Partition | None, *, lost: bool = False) -> QuerySet[Accelerator]:
    """Its present GPUs; without a partition, those in none. `lost`: including lost nodes."""
    present = Accelerator.objects.filter(present=True, node__cluster=cluster_id).order_by()
    if not lost:
        present = present.filter(node__lost=False)
    if partition is not None:
        return present.filter(_inside(partition))
    for one in Partition.objects.filter(cluster=cluster_id):
        present = present.exclude(_inside(one))
    return present


def _inside(partition: Partition) -> Q:
    return Q(node__name__in=partition.nodes) | Q(node__accelerator_type__in=partition.accelerator_types)


class Limits(TypedDict):
    """Limits of one job, as its columns."""

    max_gpus: int | None
    max_duration_s: float | None


def limits_of(job_file: JobFile, partition: Partition | None) -> Limits:
    """From the job file, or the partition's if it leaves them open. Raises Problems if they exceed the partition's.

    The job file is unchanged: in another partition, or resubmitted, open keys stay open.
    """
    most, longest = job_file.gpus.max, job_file.max_duration
    if job_file.gpus.share_percent < WHOLE_PERCENT:
        most = 1
    if partition is not None:
        check_limits(partition, job_file.gpus, longest)
        most = partition.max_gpus if most is None else most
        longest = partition.max_duration_s if longest is None else longest
    return {"max_gpus": most, "max_duration_s": longest}


def check_limits(partition: Partition, gpus: Gpus, max_duration_s: float | None) -> None:
    problems = []
    most, longest = partition.max_gpus, partition.max_duration_s
    for field, count in (("gpus.min", gpus.min), ("gpus.max", gpus.max)):
        if most is not None and count is not None and count > most:
            text = f"partition {partition.name} lets one job have at most {most} GPUs, not {count}"
            problems.append(FieldProblem(field, text, "partition"))
    if longest is not None and max_duration_s is not None and max_duration_s > longest:
        text = f"partition {partition.name} lets a job train for at most {longest} s, not {max_duration_s:g}"
        problems.append(FieldProblem("max_duration", text, "partition"))
    if problems:
        raise Problems(problems)
