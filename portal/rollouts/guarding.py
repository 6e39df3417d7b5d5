"""Promoted policies held against their bounds, from what the database has: a restart of the portal loses nothing."""

from __future__ import annotations

import logging
from datetime import datetime

from django.db import transaction

from portal.rollouts.bounds import broken, words
from portal.rollouts.indicators import measure
from portal.rollouts.models import GuardCheck, Phase, Rollout
from portal.rollouts.services import is_superseded, keep, lock, roll_back, supersede

logger = logging.getLogger(__name__)
#: With more checks than this every second one of the older half goes.
MOST_CHECKS = 400


def check_all(now: datetime) -> None:
    """One that cannot be checked says so, and is tried again the next time; it stops nobody else's."""
    for row in Rollout.objects.filter(phase=Phase.LIVE):
        try:
            check(row, now)
        except Exception as error:
            logger.exception("rollout %s cannot be checked", row.number)
            said = f"{type(error).__name__}: {error}"[:500]
            Rollout.objects.filter(pk=row.pk, phase=Phase.LIVE).update(problem=said)


@transaction.atomic
def check(rollout: Rollout, now: datetime) -> Rollout:
    """Measure, note, and end it where a bound is broken or the time is over."""
    cluster, row = lock(rollout.pk, rollout.cluster_id)
    if row.phase != Phase.LIVE:
        return row
    if is_superseded(cluster, row):
        return supersede(cluster, row)
    assert row.promoted_at is not None
    assert row.guard_until is not None
    until = min(now, row.guard_until)
    seen = measure(cluster, row.promoted_at, until)
    early = (until - row.promoted_at).total_seconds() < row.least_s
    wrong = [] if early else broken(row.limits, seen, least_jobs=row.least_jobs)
    last = row.checks.order_by("-at").first()
    GuardCheck.objects.create(rollout=row, at=now, values=seen.as_json(), broken=wrong)
    _thin(row)
    if row.problem:
        Rollout.objects.filter(pk=row.pk).update(problem="")
    over = now >= row.guard_until
    # One check alone may be a fluke of a moment; the last one decides by itself.
    lasting = wrong if over else [key for key in wrong if last and key in last.broken]
    if lasting:
        said = " and ".join(words(key, row.limits, seen) for key in lasting)
        return roll_back(cluster, row, f"{said[0].upper()}{said[1:]}.", None, seen)
    return keep(row, "The guard time passed within the bounds.") if over else row


def _thin(row: Rollout) -> None:
    points = list(row.checks.order_by("at").values_list("pk", flat=True))
    if len(points) > MOST_CHECKS:
        GuardCheck.objects.filter(pk__in=points[: len(points) // 2 : 2]).delete()
