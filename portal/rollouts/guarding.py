"""Checks promoted policies against their bounds, using the database only: a restart of the portal loses nothing."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db import transaction

from portal.jobs.loops import Item, Loop, LoopName
from portal.jobs.models import Cluster
from portal.rollouts.bounds import broken, words
from portal.rollouts.indicators import Indicators, measure
from portal.rollouts.models import GuardCheck, Phase, Rollout
from portal.rollouts.services import is_superseded, keep, lock, roll_back, supersede

#: With more checks every second one of the older half is removed.
MOST_CHECKS = 400
#: How often it is scheduled (portal.settings.CELERY_BEAT_SCHEDULE).
TICK_S = 15.0


def check_all(now: datetime) -> None:
    """A rollout that cannot be checked records why, and is retried the next time; others are not affected."""
    loop = Loop(LoopName.ROLLOUTS, postpones=False)
    for row in Rollout.objects.filter(phase=Phase.LIVE).select_related("cluster"):
        if not loop.attempt(Item(str(row.pk), f"rollout {row.number}"), check, row, now)[0]:
            Rollout.objects.filter(pk=row.pk, phase=Phase.LIVE).update(problem=loop.last_error)


def check(rollout: Rollout, now: datetime) -> None:
    """Measure, record, and end it if a bound is exceeded or its time is over."""
    assert rollout.promoted_at is not None
    assert rollout.guard_until is not None
    last = rollout.checks.order_by("-at").first()
    over = now >= rollout.guard_until
    overtaken = is_superseded(rollout.cluster, rollout)
    if last is not None and not over and not overtaken and now - last.at < _every(rollout):
        return
    # before the locks, for which rounds would wait
    seen = measure(rollout.cluster, rollout.promoted_at, min(now, rollout.guard_until))
    with transaction.atomic():
        cluster, row = lock(rollout.pk, rollout.cluster_id)
        if row.phase != Phase.LIVE:
            return
        if is_superseded(cluster, row):
            supersede(cluster, row)
        else:
            _judge(cluster, row, seen, last, now)


def _every(row: Rollout) -> timedelta:
    """Each time if it is watched for a few hours; else 2,000 times in total, but at least every five minutes: the cost
    of a check grows with the time."""
    part_s = row.guard_s / 2_000
    return timedelta(seconds=0 if part_s < TICK_S else min(300.0, part_s))


def _judge(cluster: Cluster, row: Rollout, seen: Indicators, last: GuardCheck | None, now: datetime) -> None:
    assert row.promoted_at is not None
    assert row.guard_until is not None
    over = now >= row.guard_until
    early = (min(now, row.guard_until) - row.promoted_at).total_seconds() < row.least_s
    wrong = [] if early else broken(row.limits, seen, least_jobs=row.least_jobs)
    GuardCheck.objects.create(rollout=row, at=now, values=seen.as_json(), broken=wrong)
    _thin(row)
    if row.problem:
        Rollout.objects.filter(pk=row.pk).update(problem="")
    # a single check may be a coincidence; the last one decides alone
    lasting = wrong if over else [key for key in wrong if last and key in last.broken]
    if lasting:
        said = " and ".join(words(key, row.limits, seen) for key in lasting)
        roll_back(cluster, row, f"{said[0].upper()}{said[1:]}.", None, seen)
    elif over:
        keep(row, "The guard time passed within the bounds.")


def _thin(row: Rollout) -> None:
    points = list(row.checks.order_by("at").values_list("pk", flat=True))
    if len(points) > MOST_CHECKS:
        GuardCheck.objects.filter(pk__in=points[: len(points) // 2 : 2]).delete()
