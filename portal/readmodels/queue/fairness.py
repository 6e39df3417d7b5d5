"""How evenly jobs are slowed now: of the cluster, each project and each user in it (docs/fairness.md)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from statistics import fmean, median, pvariance
from typing import Any
from uuid import UUID

from django.core.cache import cache
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

#: (project, user): the user's jobs in the project; (project, None): all of its own; (None, None): the cluster's.
Whose = tuple[int | None, int | None]
EVERYBODY: Whose = (None, None)
_KEY = "fairness/{}/{}"
_KEPT_S = 5


@dataclass(frozen=True, slots=True)
class Measured:
    """A job that has GPUs."""

    id: UUID
    project_id: int
    owner_id: int | None
    relative: float | None


@dataclass
class Standing:
    """Of somebody's jobs: those that have GPUs, with the relative throughputs that are known, and those that wait."""

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


def measured_lately(cluster: Cluster) -> list[Measured]:
    """The same at most so many seconds old, and of this round: for pages, of which many may be open."""
    key = _KEY.format(cluster.pk, cluster.round_epoch)
    known: list[Measured] | None = cache.get(key)
    if known is None:
        known = measure(cluster)
        cache.set(key, known, _KEPT_S)
    return known


def _jobs(cluster: Cluster, condition: Any) -> QuerySet[Job]:
    return Job.objects.filter(condition, cluster=cluster).order_by()


def _gangs(cluster: Cluster) -> dict[UUID | None, tuple[str, int]]:
    """Type and number of the GPUs that each run has."""
    rows = Assignment.objects.filter(run__job__cluster=cluster, during__upper_inf=True).order_by()
    counted = rows.values_list("run", "accelerator__node__accelerator_type").annotate(count=Count("pk"))
    return {run: (kind, count) for run, kind, count in counted}


def _waiting(cluster: Cluster) -> dict[tuple[int, int | None], int]:
    """Jobs that wait for GPUs by (project, owner); of one that somebody holds back it is no unfairness."""
    rows = _jobs(cluster, waiting_for_gpus())
    return {(project, owner): n for project, owner, n in rows.values_list("project", "owner").annotate(n=Count("pk"))}


def standings(cluster: Cluster, measured: Iterable[Measured]) -> dict[Whose, Standing]:
    """Of everybody who has jobs, and of all of them together. Jobs that are nobody's count for their project."""
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
    """Which variance the policy in force keeps below; None where it has no bound."""
    policy = load_policy(cluster.policy_name, cluster.policy_parameters)
    return variance_bound(policy.parameters)


def sample_fairness(cluster: Cluster, now: datetime) -> None:
    """File how everybody who has jobs stands now."""
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


def describe_standing(standing: Standing) -> dict[str, Any]:
    relative = standing.relative
    return {
        "running": standing.holding,
        "known": len(relative),
        "waiting": standing.waiting,
        "relative_throughput": _spread(relative),
        "slowdown": {"mean": _rounded(standing.slowdown), "highest": _rounded(1 / min(relative))} if relative else None,
        "variance": _rounded(standing.variance, 6),
    }


def _spread(relative: Sequence[float]) -> Mapping[str, float | None] | None:
    if not relative:
        return None
    figures = {"lowest": min(relative), "median": median(relative), "mean": fmean(relative), "highest": max(relative)}
    return {name: _rounded(value) for name, value in figures.items()}


def _rounded(value: float | None, digits: int = 4) -> float | None:
    return None if value is None else round(value, digits)
