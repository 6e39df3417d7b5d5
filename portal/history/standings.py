"""How evenly jobs are slowed down now: in the cluster, and for each project and user in it; and its stored points."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from statistics import fmean, median, pvariance
from typing import Any
from uuid import UUID

from django.db.models import Count, QuerySet

from portal.history.fairness import tick
from portal.jobs.access import in_states, waiting_for_gpus
from portal.jobs.models import Assignment, Cluster, FairnessSample, Job
from portal.throughput.available import cluster_types
from portal.throughput.job_profiles import job_profiles
from portal.throughput.slowdown import relative_throughput, steps_per_s_at
from scheduling.lifecycle import LIVE, WAITING
from scheduling.policies import load_policy
from scheduling.policies.base import variance_bound

#: (project, user): the user's jobs in the project; (project, None): all jobs of the project; (None, None): of the
#: cluster.
Whose = tuple[int | None, int | None]
EVERYBODY: Whose = (None, None)


@dataclass(frozen=True, slots=True)
class Measured:
    """A job that has GPUs."""

    id: UUID
    project_id: int
    owner_id: int | None
    relative: float | None


@dataclass
class Standing:
    """Jobs of one group: those with GPUs, their known relative throughputs, and those that wait."""

    holding: int = 0
    waiting: int = 0
    relative: list[float] = field(default_factory=list)

    @property
    def variance(self) -> float | None:
        return pvariance(self.relative) if self.relative else None

    @property
    def slowdown(self) -> float | None:
        """Mean of 1/S."""
        return fmean(1 / one for one in self.relative) if self.relative else None


def measure(cluster: Cluster) -> list[Measured]:
    """All jobs that have GPUs; four queries, whatever their number."""
    jobs = list(_jobs(cluster, in_states(LIVE - WAITING)).select_related("run").prefetch_related("model_type"))
    if not jobs:
        return []
    types = cluster_types(cluster.pk)
    known, gpus = job_profiles(jobs, types), _gangs(cluster)
    found = []
    for job in jobs:
        kind, count = gpus.get(job.run_id, ("", 0))
        steps_per_s = steps_per_s_at(known[job.pk].get(kind), count)
        relative = relative_throughput(steps_per_s, known[job.pk], types, job.max_gpus)
        found.append(Measured(job.pk, job.project_id, job.owner_id, relative))
    return found


def _jobs(cluster: Cluster, condition: Any) -> QuerySet[Job]:
    return Job.objects.filter(condition, cluster=cluster).order_by()


def _gangs(cluster: Cluster) -> dict[UUID | None, tuple[str, int]]:
    """Type and number of the GPUs that each run has."""
    rows = Assignment.objects.filter(run__job__cluster=cluster, during__upper_inf=True).order_by()
    counted = rows.values_list("run", "accelerator__node__accelerator_type").annotate(count=Count("pk"))
    return {run: (kind, count) for run, kind, count in counted}


def _waiting(cluster: Cluster) -> dict[tuple[int, int | None], int]:
    """Jobs that wait for GPUs by (project, owner); a job on hold is not treated unfairly."""
    rows = _jobs(cluster, waiting_for_gpus())
    return {(project, owner): n for project, owner, n in rows.values_list("project", "owner").annotate(n=Count("pk"))}


def standings(cluster: Cluster, measured: Iterable[Measured]) -> dict[Whose, Standing]:
    """Of every group with jobs, and of the whole cluster. Jobs without an owner count for their project."""
    found: dict[Whose, Standing] = defaultdict(Standing)
    found[EVERYBODY] = Standing()
    for one in measured:
        for whose in _counts_for(one.project_id, one.owner_id):
            found[whose].holding += 1
            if one.relative is not None:
                found[whose].relative.append(one.relative)
    for (project, owner), n in _waiting(cluster).items():
        for whose in _counts_for(project, owner):
            found[whose].waiting += n
    return dict(found)


def _counts_for(project: int, owner: int | None) -> list[Whose]:
    return [EVERYBODY, (project, None)] + ([(project, owner)] if owner is not None else [])


def bound_of(cluster: Cluster) -> float | None:
    """The variance bound of the policy in force; None if it has none."""
    policy = load_policy(cluster.policy_name, cluster.policy_parameters)
    return variance_bound(policy.parameters)


def sample_fairness(cluster: Cluster, now: datetime) -> None:
    """Store the present point of every group with jobs."""
    bound, found = bound_of(cluster), standings(cluster, measure(cluster))
    rows = [_row(cluster, whose, standing, bound, tick(now)) for whose, standing in found.items()]
    FairnessSample.objects.bulk_create(rows, ignore_conflicts=True, batch_size=1_000)


def _row(cluster: Cluster, whose: Whose, standing: Standing, bound: float | None, at: datetime) -> FairnessSample:
    project, user = whose
    row = FairnessSample(
        cluster=cluster, project_id=project, user_id=user, at=at, holding=standing.holding, waiting=standing.waiting
    )
    row.bound = bound if whose == EVERYBODY else None
    row.known_samples = 1 if standing.relative else 0
    if relative := standing.relative:
        row.lowest, row.median, row.mean, row.highest = min(relative), median(relative), fmean(relative), max(relative)
        row.slowdown, row.variance = standing.slowdown, standing.variance
    return row
