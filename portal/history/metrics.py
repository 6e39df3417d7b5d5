"""Retention of metric points: some thousand of a live run, a chart's worth of one that ended long ago."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import datetime, timedelta
from uuid import UUID

from django.conf import settings
from django.db import connection, transaction
from django.db.models import Count

from portal.jobs.loops import Item, Loop, LoopName
from portal.jobs.models import MetricPoint, Run
from scheduling.lifecycle import LIVE

#: A live run with more points keeps every second one of the older half.
MAX_POINTS = 4_000
#: Points of a run that stay forever: as many as a chart shows.
LASTING_POINTS = 200
#: Runs in one transaction, and how long a pruning continues with further ones.
_RUNS, _PASS_S = 100, 20.0

_THIN_CROWDED = """
    DELETE FROM jobs_metricpoint AS point USING (
        SELECT id, row_number() OVER (PARTITION BY run_id ORDER BY at, id) - 1 AS place,
            count(*) OVER (PARTITION BY run_id) AS n
        FROM jobs_metricpoint WHERE run_id = ANY(%s)
    ) AS placed
    WHERE point.id = placed.id AND place < n / 2 AND place %% 2 = 0"""
# the first point, and the last of each of equal intervals
_THIN_ENDED = """
    DELETE FROM jobs_metricpoint AS point USING (
        SELECT id, row_number() OVER (PARTITION BY run_id ORDER BY at, id) - 1 AS place,
            count(*) OVER (PARTITION BY run_id) AS n
        FROM jobs_metricpoint WHERE run_id = ANY(%(runs)s)
    ) AS placed
    WHERE point.id = placed.id AND n > %(kept)s AND place > 0
        AND place * (%(kept)s - 1) / n = (place + 1) * (%(kept)s - 1) / n"""


def prune(now: datetime) -> None:
    """Within its time limit; the rest of the ended runs is left for the next pruning."""
    thin_live()
    until = time.monotonic() + _PASS_S
    before = now - timedelta(days=settings.EVENKEEL_KEEP.metrics_days)
    while thin_ended(before) == _RUNS and time.monotonic() < until:
        pass


def thin_live() -> None:
    points = MetricPoint.objects.filter(run__state__in=[state.value for state in LIVE])
    crowded = points.order_by().values("run").annotate(n=Count("pk")).filter(n__gt=MAX_POINTS)
    runs = list(crowded.values_list("run", flat=True)[:1_000])
    loop = Loop(LoopName.PRUNING)
    for at in range(0, len(runs), _RUNS):
        loop.together(runs[at : at + _RUNS], _of_run, _thin_crowded)


def _of_run(run: UUID) -> Item:
    return Item(f"metrics:{run}", f"metrics of run {run}", None, {"run_id": str(run)})


def _thin_crowded(runs: Sequence[UUID]) -> list[UUID]:
    with connection.cursor() as cursor:
        cursor.execute(_THIN_CROWDED, [list(runs)])
    return list(runs)


def thin_ended(before: datetime) -> int:
    """The number of runs, ended by then, that were thinned, oldest first."""
    loop = Loop(LoopName.PRUNING)
    with transaction.atomic():
        ended = Run.objects.filter(ended_at__lt=before, metrics_thinned=False)
        due = (
            ended.exclude(pk__in=loop.postponed_ids("metrics:"))
            .order_by("ended_at")
            .select_for_update(skip_locked=True)
        )
        runs = list(due.values_list("pk", flat=True)[:_RUNS])
        loop.together(runs, _of_run, _thin_ended)
    return len(runs)


def _thin_ended(runs: Sequence[UUID]) -> list[UUID]:
    with connection.cursor() as cursor:
        cursor.execute(_THIN_ENDED, {"runs": list(runs), "kept": LASTING_POINTS})
    Run.objects.filter(pk__in=runs).update(metrics_thinned=True)
    return list(runs)
