"""How evenly jobs were slowed down: points of the cluster, and each project and user in it, merged with age.

Import the model from portal.jobs.models.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import connection

from portal.jobs.models.history import EVERY_S, By, FairnessSample

#: From this age on, the points of an interval become one.
_MERGED = ((timedelta(hours=3), 900), (timedelta(days=1), 3_600), (timedelta(days=14), 86_400))
_STEPS = [EVERY_S, *(step_s for _, step_s in _MERGED)]


def tick(now: datetime) -> datetime:
    """The time under which a present point is stored: two calls in a minute write once."""
    return datetime.fromtimestamp(now.timestamp() // EVERY_S * EVERY_S, UTC)


#: Exact except for the median, which is the mean of minutes' medians; a bound is the strictest one of the time.
_FIGURES = """
    sum(samples) AS samples, sum(known_samples) AS known_samples,
    sum(holding * samples) / sum(samples) AS holding, sum(waiting * samples) / sum(samples) AS waiting,
    min(lowest) AS lowest, sum(median * known_samples) / nullif(sum(known_samples), 0) AS median,
    sum(mean * known_samples) / nullif(sum(known_samples), 0) AS mean, max(highest) AS highest,
    sum(slowdown * known_samples) / nullif(sum(known_samples), 0) AS slowdown,
    sum(variance * known_samples) / nullif(sum(known_samples), 0) AS variance, min(bound) AS bound"""
_NAMES = (
    "samples", "known_samples", "holding", "waiting", "lowest", "median", "mean", "highest", "slowdown", "variance",
    "bound",
)  # fmt: skip

#: A point that arrives after its interval was merged is dropped.
_MERGE = f"""
    WITH fine AS (
        DELETE FROM jobs_fairnesssample
        WHERE step_s = ANY(%(finer)s) AND at < to_timestamp(floor(%(before)s / %(step_s)s) * %(step_s)s) RETURNING *)
    INSERT INTO jobs_fairnesssample (cluster_id, project_id, user_id, at, step_s, {", ".join(_NAMES)})
    SELECT cluster_id, project_id, user_id,
        to_timestamp(floor(extract(epoch FROM at) / %(step_s)s) * %(step_s)s) AS stretch,
        %(step_s)s, {_FIGURES}
    FROM fine GROUP BY cluster_id, project_id, user_id, stretch ON CONFLICT DO NOTHING"""  # noqa: S608 - constants


def prune(now: datetime) -> None:
    """Less than 1,000 points for each in 400 days: whole intervals are merged, and older ones removed."""
    with connection.cursor() as cursor:
        for place, (age, step_s) in enumerate(_MERGED, 1):
            values: dict[str, Any] = {"finer": _STEPS[:place], "before": (now - age).timestamp(), "step_s": step_s}
            cursor.execute(_MERGE, values)
    kept = now - timedelta(days=settings.EVENKEEL_KEEP.fairness_days)
    FairnessSample.objects.filter(step_s__in=_STEPS, at__lt=kept).delete()


@dataclass(frozen=True, slots=True)
class Series:
    """One group's figures over the whole time."""

    project_id: int | None
    user_id: int | None
    figures: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Asked:
    """The requested series and time; `projects`: those that the user may see."""

    cluster_id: int
    by: By
    projects: Sequence[int]
    from_at: datetime
    to_at: datetime

    @property
    def condition(self) -> str:
        match self.by:
            case "cluster":
                whose = "project_id IS NULL AND user_id IS NULL"
            case "project":
                whose = "project_id = ANY(%(projects)s) AND user_id IS NULL"
            case "user":
                whose = "project_id = ANY(%(projects)s) AND user_id IS NOT NULL"
        return f"cluster_id = %(cluster)s AND {whose} AND at >= %(from_at)s AND at < %(to_at)s"

    @property
    def values(self) -> dict[str, Any]:
        return {
            "cluster": self.cluster_id,
            "projects": list(self.projects),
            "from_at": self.from_at,
            "to_at": self.to_at,
        }


def series_of(asked: Asked, *, offset: int, limit: int) -> list[Series]:
    """Groups with jobs in that time, the lowest mean relative throughput first."""
    statement = f"""
        SELECT project_id, user_id, {_FIGURES} FROM jobs_fairnesssample WHERE {asked.condition}
        GROUP BY project_id, user_id ORDER BY mean NULLS LAST, project_id, user_id OFFSET %(offset)s LIMIT %(limit)s"""  # noqa: S608 - constants
    with connection.cursor() as cursor:
        cursor.execute(statement, asked.values | {"offset": offset, "limit": limit})
        rows = cursor.fetchall()
    return [Series(project, user, _named(figures)) for project, user, *figures in rows]


def points_of(asked: Asked, series: Sequence[Series], most: int) -> list[list[dict[str, Any]]]:
    """Of each series, oldest first: at most this many equal intervals with their figures. One statement."""
    # a time that begins within an interval touches one interval more
    step_s = max(float(EVERY_S), (asked.to_at - asked.from_at).total_seconds() / (most - 1))
    wanted = [(one.project_id or 0, one.user_id or 0) for one in series]
    asked = replace(asked, projects=sorted({project for project, _ in wanted}))
    statement = f"""
        SELECT coalesce(project_id, 0), coalesce(user_id, 0), max(at) AS last_at, {_FIGURES} FROM jobs_fairnesssample
        WHERE {asked.condition} AND (coalesce(project_id, 0), coalesce(user_id, 0)) IN (
            SELECT * FROM unnest(%(whose)s::bigint[], %(whom)s::bigint[]))
        GROUP BY project_id, user_id, floor(extract(epoch FROM at) / %(step_s)s) ORDER BY last_at"""  # noqa: S608 - constants
    values = {"step_s": step_s, "whose": [one for one, _ in wanted], "whom": [one for _, one in wanted]}
    found: dict[tuple[int, int], list[dict[str, Any]]] = {whose: [] for whose in wanted}
    with connection.cursor() as cursor:
        cursor.execute(statement, asked.values | values)
        for project, user, at, *figures in cursor.fetchall():
            found[project, user].append({"at": at} | _named(figures))
    return list(found.values())


def _named(figures: Sequence[Any]) -> dict[str, Any]:
    return dict(zip(_NAMES, figures, strict=True))
