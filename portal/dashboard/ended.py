"""How much longer finished jobs took than they would have taken alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from django.db import connection
from django.utils import timezone

from accounts.models import Project, User
from scheduling.lifecycle import State

GroupBy = Literal["all", "project", "user", "month", "day"]
#: Keys by which jobs are grouped, and their labels. Grouping texts would take twice as long.
_KEYS: dict[GroupBy, tuple[str, str]] = {
    "all": ("run.state", "''"),
    "project": ("job.project_id", "job.project_id::text"),
    "user": ("job.owner_id", "coalesce(job.owner_id::text, '')"),
    "month": ("date_trunc('month', {ended})", "to_char(date_trunc('month', {ended}), 'YYYY-MM')"),
    "day": ("date_trunc('day', {ended})", "to_char(date_trunc('day', {ended}), 'YYYY-MM-DD')"),
}
_ENDED = "run.ended_at AT TIME ZONE %(zone)s"
_PERIODS = ("month", "day")
#: Percentiles are linear between the jobs; a job whose speed alone is unknown is only counted.
_DISTRIBUTION = """
    SELECT {written}, count(run.slowdown), count(*) - count(run.slowdown),
        percentile_cont(0.5) WITHIN GROUP (ORDER BY run.slowdown),
        percentile_cont(0.9) WITHIN GROUP (ORDER BY run.slowdown), max(run.slowdown)
    FROM jobs_run AS run JOIN jobs_job AS job ON job.run_id = run.id
    WHERE run.state = %(finished)s AND run.ended_at >= %(from_at)s AND run.ended_at < %(to_at)s
        AND job.cluster_id = %(cluster)s AND job.project_id = ANY(%(projects)s)
    GROUP BY {key} ORDER BY {order} OFFSET %(offset)s LIMIT %(limit)s"""
_WORST_FIRST = "percentile_cont(0.5) WITHIN GROUP (ORDER BY run.slowdown) DESC NULLS LAST, {key}"


@dataclass(frozen=True, slots=True)
class Ended:
    """The selected jobs: of these projects, ended in that time."""

    cluster_id: int
    group_by: GroupBy
    projects: Sequence[int]
    from_at: datetime
    to_at: datetime


def slowdown_of_ended(asked: Ended, *, offset: int, limit: int) -> list[dict[str, Any]]:
    """Groups with the highest median first (days and months: newest first); two queries at most."""
    key, written = (part.format(ended=_ENDED) for part in _KEYS[asked.group_by])
    order = "{key} DESC" if asked.group_by in _PERIODS else _WORST_FIRST
    values: dict[str, Any] = {
        "zone": timezone.get_default_timezone_name(),
        "finished": State.FINISHED.value,
        "from_at": asked.from_at,
        "to_at": asked.to_at,
        "cluster": asked.cluster_id,
        "projects": list(asked.projects),
        "offset": offset,
        "limit": limit,
    }
    with connection.cursor() as cursor:
        cursor.execute(_DISTRIBUTION.format(key=key, written=written, order=order.format(key=key)), values)
        rows = cursor.fetchall()
    names = _names(asked.group_by, [row[0] for row in rows])
    return [
        {
            **dict(zip(("key", "label"), names.get(name, (name, name)), strict=True)),
            "jobs": jobs,
            "unknown": unknown,
            "slowdown": {"p50": round(p50, 4), "p90": round(p90, 4), "highest": round(most, 4)} if jobs else None,
        }
        for name, jobs, unknown, p50, p90, most in rows
    ]


def _names(group_by: GroupBy, keys: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Key in the database -> (key, label) for people."""
    if group_by == "project":
        rows = Project.objects.filter(pk__in=keys).values_list("pk", "key", "name")
        return {str(pk): (key, name) for pk, key, name in rows}
    if group_by == "user":
        users = User.objects.filter(pk__in=[key for key in keys if key])
        return {str(user.pk): (user.email, str(user)) for user in users} | {"": ("", "deleted user")}
    return {"": ("", "All")}
