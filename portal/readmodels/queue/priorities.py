"""Priorities and shares for people, like Slurm's `sprio -l` and `sshare -a`.

Under a policy other than `multifactor` they show what its defaults would yield for the present queue.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import numpy as np

from accounts.fair_share import next_reset
from accounts.models import Project, User
from accounts.selectors import visible_projects
from portal.core.times import iso
from portal.history.shares import factor_of
from portal.jobs.models import Cluster, Job
from portal.readmodels.jobs.summary import array_place
from portal.snapshot.priority_inputs import PriorityInputs, expected_ends, gather_priority_inputs, score_waiting
from scheduling import domain
from scheduling.priority.course import course
from scheduling.priority.fair_share import Form, Key, Leaf, Standing
from scheduling.priority.multifactor import FACTORS
from scheduling.priority.scoring import Formula, Scores, standings_of

_COURSE_POINTS = 15


# Priorities ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ranked:
    """(position among all waiting jobs, index in `scores`) of each waiting job that the user may see."""

    in_force: bool
    rows: list[tuple[int, int]]
    scores: Scores
    formula: Formula


def priorities_of(user: User, cluster: Cluster, now: datetime, *, project: Project | None = None) -> Ranked:
    """The waiting jobs that the user may see, highest priority first, with their position among all waiting jobs."""
    seen = gather_priority_inputs(cluster, now)
    scores, waiting = score_waiting(seen)
    mine = visible_projects(user)
    if project is not None:
        mine = mine.filter(ancestry__contains=[project.pk])
    keys = set(mine.values_list("key", flat=True))
    rows = [(rank, at) for rank, at in enumerate(scores.order, 1) if waiting[at].project in keys]
    return Ranked(seen.in_force, rows, scores, seen.formula)


def describe_priorities(found: Ranked, rows: list[tuple[int, int]]) -> list[dict[str, Any]]:
    scores, formula = found.scores, found.formula
    numbers = [scores.jobs[at].number for _, at in rows]
    jobs = {
        job.number: job for job in Job.objects.filter(number__in=numbers).select_related("owner", "project", "array")
    }
    return [
        _describe(jobs[scores.jobs[at].number], rank, at, scores, formula)
        for rank, at in rows
        if scores.jobs[at].number in jobs
    ]


def _named(job: Job) -> dict[str, Any]:
    return {
        "number": job.number,
        "name": job.name,
        "array": array_place(job),
        "project": {"key": job.project.key, "name": job.project.name},
        "owner": {"name": str(job.owner), "email": job.owner.email} if job.owner else None,
    }


def _describe(job: Job, rank: int, at: int, scores: Scores, formula: Formula) -> dict[str, Any]:
    return _named(job) | {
        "rank": rank,
        "priority": int(scores.priorities.total[at]),
        "site": int(scores.priorities.site[at]),
        "nice": int(scores.priorities.nice[at]),
        "factors": _factors(at, scores, formula),
    }


def _factors(at: int, scores: Scores, formula: Formula) -> list[dict[str, Any]]:
    weights, columns = formula.weights, scores.columns
    named = [(name, getattr(weights, name), getattr(columns, name)) for name in FACTORS]
    named += [(name, weight, columns.resources[name]) for name, weight in weights.resources.items()]
    return [
        {"name": name, "weight": weight, "factor": float(column[at]), "points": float(weight * column[at])}
        for name, weight, column in named
    ]


def describe_job_priority(cluster: Cluster, job: Job, now: datetime) -> dict[str, Any]:
    """Of one waiting job, with its development; empty for a job that waits for no GPUs."""
    seen = gather_priority_inputs(cluster, now)
    scores, waiting = score_waiting(seen)
    head = {"in_force": seen.in_force, "at": iso(now), "waiting": len(waiting)}
    place = {waiting[at].number: (rank, at) for rank, at in enumerate(scores.order, 1)}
    if job.number not in place:
        return _named(job) | head | {
            "rank": None, "priority": None, "site": 0, "nice": 0, "factors": [], "course": [],
        }  # fmt: skip
    rank, at = place[job.number]
    course = _course(seen, waiting[at], expected_ends(cluster, now), now)
    return _describe(job, rank, at, scores, seen.formula) | head | {"course": course}


def _course(seen: PriorityInputs, job: domain.Job, ends: Mapping[str, float], now: datetime) -> list[dict[str, Any]]:
    """Its priority until its age no longer grows, as running jobs continue and end."""
    ahead_s = [float(after_s) for after_s in np.linspace(0.0, seen.formula.max_age_s, _COURSE_POINTS)]
    found = course(seen.snapshot, [job], seen.formula, ahead_s, ends=ends, reset_at=next_reset(now))
    return [
        {
            "at": iso(now + timedelta(seconds=after_s)),
            "priority": int(scores.priorities.total[0]),
            "factors": _factors(0, scores, seen.formula),
        }
        for after_s, scores in zip(ahead_s, found, strict=True)
    ]


# Shares --------------------------------------------------------------------------------------------


#: (project, itself or a user of it, level)
Place = tuple[Project, Key, int]


@dataclass(frozen=True)
class Shown:
    """The part of the tree that the user may see, in its order."""

    in_force: bool
    form: Form
    rows: list[Place]
    standings: Mapping[Key, Standing]


def shares_of(user: User, cluster: Cluster, now: datetime, *, project: Project | None = None) -> Shown:
    """The tree of projects and users that the user may see, each below its parent."""
    seen = gather_priority_inputs(cluster, now)
    formula = seen.formula
    found = standings_of(seen.snapshot, formula)
    visible = visible_projects(user)
    if project is not None:
        visible = visible.filter(ancestry__contains=[project.pk])
    rows = _with_users(list(visible.order_by("key")), found)
    return Shown(seen.in_force, formula.form, rows, found)


def in_tree_order(projects: Iterable[Project]) -> list[Project]:
    """Each project before its subprojects."""
    projects = list(projects)
    path = {one.pk: one.key for one in projects}
    return sorted(projects, key=lambda one: [path.get(pk, "") for pk in one.ancestry])


def _with_users(projects: list[Project], found: Mapping[Key, Standing]) -> list[Place]:
    """Each project before its users and those before the projects below."""
    users: dict[str, list[Leaf]] = {}
    for key in found:
        if isinstance(key, Leaf):
            users.setdefault(key.account, []).append(key)
    ordered = in_tree_order(projects)
    top = min((len(one.ancestry) for one in projects), default=1)
    rows: list[Place] = []
    for one in ordered:
        level = len(one.ancestry) - top
        if one.key in found:
            rows.append((one, one.key, level))
        rows += [(one, leaf, level + 1) for leaf in sorted(users.get(one.key, ()), key=lambda leaf: leaf.user)]
    return rows


def describe_shares(found: Shown, rows: list[Place]) -> list[dict[str, Any]]:
    ids = [int(key.user) for _, key, _ in rows if isinstance(key, Leaf) and key.user]
    people = User.objects.in_bulk(ids)
    described = []
    for project, key, level in rows:
        standing = found.standings[key]
        person = people.get(int(key.user)) if isinstance(key, Leaf) and key.user else None
        described.append(
            {
                "project": {"key": project.key, "name": project.name},
                "user": {"name": str(person), "email": person.email} if person else None,
                "is_user": isinstance(key, Leaf),
                "level": level,
                "shares": standing.shares,
                "norm_shares": standing.norm_shares,
                "usage_gpu_hours": standing.usage / 3_600,
                "norm_usage": standing.norm_usage,
                "effective_usage": standing.effective_usage,
                "level_fs": None if standing.level_fs == float("inf") else standing.level_fs,
                "factor": factor_of(found.form, key, standing),
            }
        )
    return described
