"""Fairness for display: which jobs are slowed down how much, now and over time, and why. The number of queries does not
grow with jobs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from django.db.models import Case, QuerySet, When
from django.db.models.functions import Coalesce

from accounts.models import Project, User
from portal.core.times import iso
from portal.history.fairness import Asked, Series, points_of, series_of
from portal.history.standings import EVERYBODY, Measured, Standing, Whose, bound_of, standings
from portal.jobs.access import visible_jobs, waiting_for_gpus
from portal.jobs.models import Cluster, Job
from portal.readmodels.jobs.summary import array_place, describe_jobs
from portal.readmodels.queue.fairness import describe_standing, measured_lately

MAX_ROWS, MAX_JOBS = 200, 20


def fairness_now(user: User, cluster: Cluster, projects: QuerySet[Project], now: datetime) -> dict[str, Any]:
    """The cluster's figures, which everybody may see, and those of `projects` with their people and jobs."""
    measured = measured_lately(cluster)
    found = standings(cluster, measured)
    bound, everybody = bound_of(cluster), found[EVERYBODY]
    mine = {pk: {"key": key, "name": name} for pk, key, name in projects.values_list("pk", "key", "name")}
    of_projects = _rows(found, mine, of_users=False)
    of_users = _rows(found, mine, of_users=True)
    return {
        "at": iso(now),
        "policy": {"name": cluster.policy_name, "v_bound": bound},
        "within_bound": None if bound is None or everybody.variance is None else everybody.variance < bound,
        "cluster": describe_standing(everybody),
        "projects": _described(of_projects[:MAX_ROWS], mine),
        "more_projects": len(of_projects) > MAX_ROWS,
        "users": _described(of_users[:MAX_ROWS], mine),
        "more_users": len(of_users) > MAX_ROWS,
        "worst_off": _worst_off(user, [one for one in measured if one.project_id in mine], now),
        "longest_waiting": _longest_waiting(user, cluster, list(mine), now),
    }


def _rows(found: Mapping[Whose, Standing], mine: Mapping[int, Any], *, of_users: bool) -> list[tuple[Whose, Standing]]:
    """Lowest relative throughput first; unknown ones last."""
    rows = [(whose, one) for whose, one in found.items() if whose[0] in mine and (whose[1] is not None) is of_users]
    return sorted(rows, key=lambda row: (min(row[1].relative, default=2.0), -row[1].waiting, row[0]))


def _described(rows: Sequence[tuple[Whose, Standing]], mine: Mapping[int, Any]) -> list[dict[str, Any]]:
    people = _people(whose[1] for whose, _ in rows)
    return [_named(whose, mine, people) | describe_standing(standing) for whose, standing in rows]


def _people(ids: Iterable[int | None]) -> dict[int | None, dict[str, str]]:
    wanted = {one for one in ids if one is not None}
    users = User.objects.filter(pk__in=wanted) if wanted else ()
    return {user.pk: {"name": str(user), "email": user.email} for user in users}


def _named(whose: Whose, mine: Mapping[int, Any], people: Mapping[int | None, Any]) -> dict[str, Any]:
    project, user = whose
    return {"project": mine.get(project) if project else None, "user": people.get(user) if user else None}


def _worst_off(user: User, mine: Sequence[Measured], now: datetime) -> list[dict[str, Any]]:
    known = sorted((one.relative, one.id) for one in mine if one.relative is not None)[:MAX_JOBS]
    jobs = {job.pk: job for job in visible_jobs(user).filter(pk__in=[pk for _, pk in known])} if known else {}
    return _jobs([jobs[pk] for _, pk in known if pk in jobs], now)


def _longest_waiting(user: User, cluster: Cluster, mine: Sequence[int], now: datetime) -> list[dict[str, Any]]:
    """For GPUs: time on hold or waiting for dependencies does not count; a job that lost its GPUs starts waiting
    anew."""
    first = Case(
        When(run__first_started_at=None, then=Coalesce("eligible_at", "submitted_at")), default="run__state_since"
    )
    waiting = visible_jobs(user).filter(waiting_for_gpus(), cluster=cluster, project__in=mine).order_by(first, "number")
    return _jobs(list(waiting[:MAX_JOBS]), now)


def _jobs(jobs: Sequence[Job], now: datetime) -> list[dict[str, Any]]:
    return [_job(job, said) for job, said in zip(jobs, describe_jobs(jobs, now), strict=True)] if jobs else []


def _job(job: Job, said: Mapping[str, Any]) -> dict[str, Any]:
    names = ("number", "name", "project", "owner", "state", "relative_throughput", "slowdown", "reason", "emulated")
    return {name: said[name] for name in names} | {
        "array": array_place(job),
        "gpus": said["allocation"]["count"] if said["allocation"] else 0,
        "waited_s": said["times"]["queueing_s"],
    }


def fairness_history(asked: Asked, *, offset: int, limit: int, points: int) -> tuple[list[dict[str, Any]], int]:
    """A page of series, and how many are known: one more if there are more."""
    found = series_of(asked, offset=offset, limit=limit + 1)
    shown = found[:limit]
    courses = points_of(asked, shown, points) if shown else []
    projects = Project.objects.filter(pk__in={one.project_id for one in shown if one.project_id})
    mine = {project.pk: {"key": project.key, "name": project.name} for project in projects}
    people = _people(one.user_id for one in shown)
    rows = [_series(one, course, mine, people) for one, course in zip(shown, courses, strict=True)]
    return rows, offset + len(found)


def _series(
    one: Series, course: list[dict[str, Any]], mine: Mapping[int, Any], people: Mapping[int | None, Any]
) -> dict[str, Any]:
    return _named((one.project_id, one.user_id), mine, people) | {
        "figures": _figures(one.figures),
        "points": [{"at": iso(point["at"])} | _figures(point) for point in course],
    }


def _figures(found: Mapping[str, Any]) -> dict[str, Any]:
    """Rounded like present ones."""
    lowest = found["lowest"]
    relative = {name: round(found[name], 4) for name in ("lowest", "median", "mean", "highest")} if lowest else None
    slowdown = {"mean": round(found["slowdown"], 4), "highest": round(1 / lowest, 4)} if lowest else None
    variance = found["variance"]
    return {
        "samples": found["samples"],
        "running": round(found["holding"], 2),
        "waiting": round(found["waiting"], 2),
        "relative_throughput": relative,
        "slowdown": slowdown,
        "variance": None if variance is None else round(variance, 6),
        "v_bound": found["bound"],
    }
