"""History of each project's effective usage and fair-share factor: points that get sparser with age.

Import the model from portal.jobs.models.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import connection

from accounts.models import Project
from portal.jobs.models import Cluster
from portal.jobs.models.history import ShareSample
from portal.snapshot.priority_inputs import gather_priority_inputs
from scheduling.priority.fair_share import Form, Key, Leaf, Standing
from scheduling.priority.scoring import standings_of

EVERY_S = 900.0

#: From this age on, two points of an interval are kept: the lowest and the highest effective usage.
_THINNED = ((timedelta(days=1), 3_600), (timedelta(days=14), 86_400))

#: Up to this many quarters of an hour are returned as they are; of more, two points for each of half as many intervals.
MAX_POINTS = 150


def tick(now: datetime) -> datetime:
    """The time under which a present point is stored: two calls write once."""
    return datetime.fromtimestamp(now.timestamp() // EVERY_S * EVERY_S, UTC)


#: If all are equal, the first and the last.
_THIN = """
    DELETE FROM jobs_sharesample WHERE id IN (
        SELECT id FROM (
            SELECT id, row_number() OVER (stretch ORDER BY effective_usage, at) AS lowest,
                row_number() OVER (stretch ORDER BY effective_usage DESC, at DESC) AS highest
            FROM jobs_sharesample WHERE at < %(before)s
            WINDOW stretch AS (
                PARTITION BY cluster_id, project_id, floor(extract(epoch FROM at) / %(step_s)s))) AS old
        WHERE lowest > 1 AND highest > 1)"""


def prune(now: datetime) -> None:
    """At most some 1,500 points of each project, and none older than the retention time."""
    kept = timedelta(days=settings.EVENKEEL_KEEP.shares_days)
    ShareSample.objects.filter(at__lt=now - kept).delete()
    with connection.cursor() as cursor:
        for age, step_s in _THINNED:
            cursor.execute(_THIN, {"before": now - age, "step_s": step_s})


_POINTS = """
    SELECT project_id, at, norm_shares, usage_gpu_s, effective_usage, factor FROM (
        SELECT *, row_number() OVER (stretch ORDER BY effective_usage, at) AS lowest,
            row_number() OVER (stretch ORDER BY effective_usage DESC, at DESC) AS highest,
            row_number() OVER (PARTITION BY project_id ORDER BY at DESC) AS newest
        FROM jobs_sharesample WHERE cluster_id = %(cluster)s AND project_id = ANY(%(projects)s) AND at >= %(since)s
        WINDOW stretch AS (PARTITION BY project_id, floor(extract(epoch FROM at) / %(step_s)s))) AS found
    WHERE lowest = 1 OR highest = 1 OR newest = 1
    ORDER BY project_id, at"""


def points_of(cluster_id: int, projects: Sequence[int], days: int, now: datetime) -> dict[int, list[dict[str, Any]]]:
    """By project, oldest first, at most MAX_POINTS and one more each, peaks and lows among them. One query."""
    span_s = days * 86_400.0
    values: dict[str, Any] = {
        "cluster": cluster_id,
        "projects": list(projects),
        "since": now - timedelta(days=days),
        # a time that begins within an interval touches one interval more
        "step_s": EVERY_S if span_s / EVERY_S < MAX_POINTS else span_s / (MAX_POINTS // 2 - 1),
    }
    found: dict[int, list[dict[str, Any]]] = {pk: [] for pk in projects}
    with connection.cursor() as cursor:
        cursor.execute(_POINTS, values)
        for pk, at, norm_shares, gpu_s, effective_usage, factor in cursor.fetchall():
            point = {"at": at, "norm_shares": norm_shares, "usage_gpu_hours": gpu_s / 3_600}
            found[pk].append(point | {"effective_usage": effective_usage, "factor": factor})
    return found


def factor_of(form: Form, key: Key, standing: Standing) -> float | None:
    """Fair Tree ranks users alone."""
    return standing.factor if form == "classic" or isinstance(key, Leaf) else None


def sample_shares(cluster: Cluster, now: datetime) -> None:
    """File how every project stands now."""
    seen = gather_priority_inputs(cluster, now)
    formula = seen.formula
    found = standings_of(seen.snapshot, formula)
    rows = [
        ShareSample(
            cluster=cluster,
            project_id=pk,
            at=tick(now),
            norm_shares=standing.norm_shares,
            usage_gpu_s=standing.usage,
            effective_usage=standing.effective_usage,
            factor=factor_of(formula.form, key, standing),
        )
        for pk, key in Project.objects.values_list("pk", "key")
        if (standing := found.get(key)) is not None
    ]
    ShareSample.objects.bulk_create(rows, ignore_conflicts=True, batch_size=1_000)
