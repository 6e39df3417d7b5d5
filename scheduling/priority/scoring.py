"""The multifactor priority of each job of a snapshot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from scheduling.capacity.memo import cluster_index
from scheduling.domain import Job, Snapshot, plain_type
from scheduling.priority.fair_share import Form, Key, Leaf, Standing, standings
from scheduling.priority.multifactor import Columns, Floats, Priorities, Weights, age_factor, priorities, size_factor
from scheduling.priority.standing import leaves, tree_of


@dataclass(frozen=True, slots=True)
class Formula:
    """Everything that the sum depends on besides the snapshot. Times in seconds; without a half-life usage never
    decays."""

    weights: Weights
    form: Form = "classic"
    half_life_s: float | None = 7 * 86_400.0
    max_age_s: float = 7 * 86_400.0
    favor_small: bool = False
    dampening: float = 1.0
    billing: Mapping[str, float] = field(default_factory=dict)
    use_site_factors: bool = False


@dataclass(frozen=True)
class Scores:
    """Priorities in the order of `jobs`, the factors they are made of, and the fair-share tree."""

    jobs: Sequence[Job]
    columns: Columns
    priorities: Priorities
    standings: Mapping[Key, Standing]

    @property
    def order(self) -> list[int]:
        """Indices of the jobs, highest priority first, then by submission."""
        submitted = np.array([job.submitted_at for job in self.jobs])
        numbers = np.array([job.number for job in self.jobs], dtype=np.int64)
        return [int(n) for n in np.lexsort((numbers, submitted, -self.priorities.total))]


def standings_of(
    snapshot: Snapshot, formula: Formula, ends: Mapping[str, float] | None = None
) -> Mapping[Key, Standing]:
    """The standing of every project and user. The site's own factor replaces ours for users who have one. `ends`: see
    tree_of."""
    found = standings(tree_of(snapshot, formula.half_life_s, formula.billing, ends), formula.form, formula.dampening)
    if formula.use_site_factors:
        for project, users in snapshot.site_factors.items():
            for user, factor in users.items():
                if (standing := found.get(leaf := Leaf(project, user))) is not None:
                    found[leaf] = replace(standing, factor=factor)
    return found


def score(snapshot: Snapshot, jobs: Sequence[Job], formula: Formula, ends: Mapping[str, float] | None = None) -> Scores:
    """`ends`: see tree_of."""
    found = standings_of(snapshot, formula, ends)
    columns = Columns(
        age=age_factor(snapshot.now - _column(_eligible(job) for job in jobs), formula.max_age_s),
        assoc=_projects(snapshot, jobs),
        fair_share=_column(found[leaf].factor for leaf in leaves(jobs)),
        job_size=size_factor(_parts(snapshot, jobs), favor_small=formula.favor_small),
        partition=_partitions(snapshot, jobs),
        qos=_levels(snapshot, jobs),
        site=_column(job.priority + job.nice for job in jobs),
        nice=_column(job.nice for job in jobs),
        resources=_resources(snapshot, jobs, formula.weights.resources),
    )
    return Scores(jobs, columns, priorities(formula.weights, columns), found)


def _column(values: object) -> Floats:
    return np.fromiter(values, dtype=np.float64)  # type: ignore[call-overload, no-any-return]


def _eligible(job: Job) -> float:
    """Since when its waiting counts."""
    since = job.submitted_at if job.eligible_at is None else job.eligible_at
    return max(since, job.not_before or since)


def _parts(snapshot: Snapshot, jobs: Sequence[Job]) -> Floats:
    """The least GPUs that each job needs, as a fraction of the cluster's."""
    return _column(job.min_gpus for job in jobs) / max(1, sum(cluster_index(snapshot.nodes).present.values()))


def _projects(snapshot: Snapshot, jobs: Sequence[Job]) -> Floats:
    """The priority of its project over the highest one."""
    priority = {key: _own_or_inherited(snapshot, key) for key in snapshot.entities}
    most = max(priority.values(), default=0) or 1
    return _column(priority.get(job.project, 0) for job in jobs) / most


def _own_or_inherited(snapshot: Snapshot, key: str) -> int:
    at: str | None = key
    while at is not None and (entity := snapshot.entities.get(at)):
        if entity.priority is not None:
            return entity.priority
        at = entity.parent
    return 0


def _partitions(snapshot: Snapshot, jobs: Sequence[Job]) -> Floats:
    """The priority of its partition over the highest one; 0 for a job without a partition."""
    priority = {name: each.priority for name, each in snapshot.partitions.items()}
    most = max(priority.values(), default=0) or 1
    return _column(priority.get(job.partition, 0) for job in jobs) / most


def _levels(snapshot: Snapshot, jobs: Sequence[Job]) -> Floats:
    """The priority of its QoS over the highest one; 0 for a job without a QoS."""
    priority = {key: each.priority for key, each in snapshot.qos.items()}
    most = max(priority.values(), default=0) or 1
    return _column(priority.get(job.qos, 0) for job in jobs) / most


def _resources(snapshot: Snapshot, jobs: Sequence[Job], wanted: Mapping[str, float]) -> dict[str, Floats]:
    """ "gpu", or the name of a type: the job's least need of it over the total."""
    sizes = cluster_index(snapshot.nodes).present
    found = {}
    for name in wanted:
        whole = sum(sizes.values()) if name == "gpu" else sizes.get(name, 0)
        needs = _column(
            job.min_gpus if name == "gpu" or set(map(plain_type, job.types)) == {name} else 0 for job in jobs
        )
        found[name] = np.clip(needs / whole, 0.0, 1.0) if whole else np.zeros(len(jobs))
    return found
