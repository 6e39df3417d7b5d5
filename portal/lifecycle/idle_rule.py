"""When a running job counts as idle, and the consequences."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.core.exceptions import ObjectDoesNotExist

from portal.jobs.models import Cluster, IdleRule, Job, Run, RunActivity
from scheduling.lifecycle import TRAINING, State


@dataclass(frozen=True, slots=True)
class Idle:
    """`release_at`: when it is suspended if it stays idle; None: never."""

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


def idle_of(row: RunActivity, rule: IdleRule, *, uses_sdk: bool | None, can_suspend: bool = True) -> Idle | None:
    """Apply the rule to a run's activity up to its newest report."""
    stuck = uses_sdk is True and row.heard_at - row.stepped_at >= rule.warn_after
    quiet = row.heard_at - row.busy_at >= rule.warn_after
    if not rule.enabled or not (stuck or quiet):
        return None
    no_step = stuck and (not quiet or row.stepped_at <= row.busy_at)
    since = row.stepped_at if no_step else row.busy_at
    return Idle(since, no_step, row.heard_at, _release_at(row, since, rule) if can_suspend else None)


def _release_at(row: RunActivity, since: datetime, rule: IdleRule) -> datetime | None:
    """The rule's time between warning and suspension always passes."""
    if rule.release_after_s is None:
        return None
    due = since + timedelta(seconds=rule.release_after_s)
    if row.warned_at is not None:
        due = max(due, row.warned_at + timedelta(seconds=rule.release_after_s - rule.warn_after_s))
    return max(due, row.postponed_until) if row.postponed_until else due


def can_be_suspended(job: Job, run: Run) -> bool:
    """The job can be stopped and resumed: jobs that would have to start from the beginning are never suspended."""
    return job.can_restart(run)


def what_it_does(row: RunActivity, found: Idle) -> str:
    gpus, time = f"{row.gpu_hundredths / 100:g} × {row.accelerator_type}", _minutes(found.for_s)
    if found.no_step:
        return f"no step for {time} while it holds {gpus}"
    return f"{gpus} held and almost unused for {time} ({row.mean_utilisation or 0.0:.0%} busy now)"


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"


def sentence(row: RunActivity, found: Idle) -> str:
    """The sentence shown for a job with a warning."""
    said = what_it_does(row, found)
    said = f"{said[0].upper()}{said[1:]}."
    if found.release_at is None:
        return f"{said} It will not be suspended; cancel it or put it on hold if it is stuck."
    return (
        f"{said} It will be suspended with its checkpoint at {found.release_at:%Y-%m-%d %H:%M} UTC unless active again."
    )


def warned_of(job: Job, run: Run, row: RunActivity | None, rule: IdleRule) -> Idle | None:
    if row is None or row.warned_at is None or row.epoch != run.epoch or State(run.state) not in TRAINING:
        return None
    return idle_of(row, rule, uses_sdk=run.uses_sdk, can_suspend=can_be_suspended(job, run))
