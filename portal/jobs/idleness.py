"""Which jobs hold GPUs and do nothing with them, by a cluster's rule, and what people read of it.

Only what reports said counts: who is not heard of is not idle but lost, which others see to. A job that keeps its GPUs
busy without a step is stuck; one that makes no steps known is judged by how busy its GPUs are alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.core.exceptions import ObjectDoesNotExist
from django.db.models import F

from portal.jobs.models import Cluster, IdleRule, Job, Run, RunActivity
from scheduling.lifecycle import TRAINING, State


@dataclass(frozen=True, slots=True)
class Idle:
    """`release_at`: when it is parked if it goes on like this; None: never."""

    since: datetime
    no_step: bool
    heard_at: datetime
    release_at: datetime | None

    @property
    def for_s(self) -> float:
        return (self.heard_at - self.since).total_seconds()


def rule_of(cluster: Cluster) -> IdleRule:
    try:
        return cluster.idle_rule
    except ObjectDoesNotExist:
        return IdleRule(cluster=cluster)


def idle_of(row: RunActivity, rule: IdleRule, *, uses_sdk: bool | None, can_park: bool = True) -> Idle | None:
    """What the rule makes of a run's doing up to its newest report."""
    stuck = uses_sdk is True and row.heard_at - row.stepped_at >= rule.warn_after
    quiet = row.heard_at - row.busy_at >= rule.warn_after
    if not rule.enabled or not (stuck or quiet):
        return None
    no_step = stuck and (not quiet or row.stepped_at <= row.busy_at)
    since = row.stepped_at if no_step else row.busy_at
    return Idle(since, no_step, row.heard_at, _release_at(row, since, rule) if can_park else None)


def _release_at(row: RunActivity, since: datetime, rule: IdleRule) -> datetime | None:
    """Nobody is parked sooner after the warning than the rule leaves between the two."""
    if rule.release_after_s is None:
        return None
    due = since + timedelta(seconds=rule.release_after_s)
    if row.warned_at is not None:
        due = max(due, row.warned_at + timedelta(seconds=rule.release_after_s - rule.warn_after_s))
    return max(due, row.postponed_until) if row.postponed_until else due


def can_be_parked(job: Job, run: Run) -> bool:
    """It can be stopped and started again: nothing that would have to begin anew is stopped."""
    return job.can_restart(run)


def what_it_does(row: RunActivity, found: Idle) -> str:
    gpus, time = f"{row.gpu_hundredths / 100:g} × {row.accelerator_type}", _minutes(found.for_s)
    if found.no_step:
        return f"no step for {time} while it holds {gpus}"
    return f"{gpus} held and next to unused for {time} ({row.mean_utilisation or 0.0:.0%} busy now)"


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"


def sentence(row: RunActivity, found: Idle) -> str:
    """What people read of a job that is warned."""
    said = what_it_does(row, found)
    said = f"{said[0].upper()}{said[1:]}."
    if found.release_at is None:
        return f"{said} Nothing parks it; cancel or hold it if it is stuck."
    return f"{said} It is parked with its checkpoint at {found.release_at:%Y-%m-%d %H:%M} UTC unless it goes on."


def warned_of(job: Job, run: Run, row: RunActivity | None, rule: IdleRule) -> Idle | None:
    if row is None or row.warned_at is None or row.epoch != run.epoch or State(run.state) not in TRAINING:
        return None
    return idle_of(row, rule, uses_sdk=run.uses_sdk, can_park=can_be_parked(job, run))


def describe_warnings(jobs: Iterable[Job]) -> dict[UUID, dict[str, Any]]:
    """By job, of those that are warned now: one query where any of them trains."""
    by_run = {job.run.pk: job for job in jobs if job.run and State(job.run.state) in TRAINING}
    if not by_run:
        return {}
    rows = RunActivity.objects.filter(run__in=list(by_run), warned_at__isnull=False, epoch=F("run__epoch"))
    found = {}
    for row in rows.select_related("run__job__cluster__idle_rule"):
        job, rule = by_run[row.pk], rule_of(row.run.job.cluster)
        if idle := warned_of(job, row.run, row, rule):
            found[job.pk] = _describe(row, idle, rule)
    return found


def _describe(row: RunActivity, found: Idle, rule: IdleRule) -> dict[str, Any]:
    return {
        "kind": "no_step" if found.no_step else "low_utilisation",
        "since_at": _iso(found.since),
        "warned_at": _iso(row.warned_at),
        "release_at": _iso(found.release_at),
        "extended_until_at": _iso(row.postponed_until),
        "extensions_left": max(0, rule.extensions_max - row.postponements) if found.release_at else 0,
        "text": sentence(row, found),
    }


def _iso(at: datetime | None) -> str | None:
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z") if at else None
