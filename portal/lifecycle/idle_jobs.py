"""Jobs that hold GPUs without using them: they get a warning and then, if the rule says so, are suspended with a
checkpoint."""

from __future__ import annotations

import contextlib
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import F, Q, QuerySet

from accounts.audit import record_audit
from accounts.models import User
from portal.core import wake
from portal.jobs import events
from portal.jobs.loops import Loop, LoopName, of_run
from portal.jobs.models import Cluster, HoldKind, IdleRule, Job, RunActivity
from portal.lifecycle.idle_rule import Idle, can_be_suspended, idle_of, rule_of, sentence, warned_of, what_it_does
from portal.lifecycle.locking import JobConflict, audit_for_others, lock_job_and_run
from portal.lifecycle.suspend import place_hold
from portal.lifecycle.transitions import StaleRun
from scheduling.lifecycle import TRAINING

#: Jobs handled in one call; the next call handles the others.
_MOST = 2_000
RULE = ("enabled", "utilisation_below", "warn_after_s", "release_after_s", "extension_s", "extensions_max")


def enforce_idle_rule(*, cluster: Cluster, now: datetime) -> None:
    """Two queries if no job is idle, however many jobs run."""
    rule = rule_of(cluster)
    mine = RunActivity.objects.filter(run__job__cluster=cluster)
    idle = _idle(mine, rule) if rule.enabled else mine.none()
    mine.filter(warned_at__isnull=False).exclude(pk__in=idle.values("pk")).update(warned_at=None)
    loop = Loop(LoopName.IDLE, cluster.pk)
    for row in idle.select_related("run__job").order_by("pk")[:_MOST]:
        loop.run(of_run(row.run), _warn_or_suspend, row, rule, now)


def _warn_or_suspend(row: RunActivity, rule: IdleRule, now: datetime) -> None:
    run = row.run
    found = idle_of(row, rule, uses_sdk=run.uses_sdk, can_suspend=can_be_suspended(run.job, run))
    if found is not None and row.warned_at is None:
        _warn(row, rule, now)
    elif found is not None and _is_due(found, row):
        _suspend(row, rule, now)


def _idle(rows: QuerySet[RunActivity], rule: IdleRule) -> QuerySet[RunActivity]:
    before = F("heard_at") - rule.warn_after
    stuck = Q(run__uses_sdk=True, stepped_at__lte=before) | Q(busy_at__lte=before)
    live = rows.filter(run__state__in=[state.value for state in TRAINING], run__job__run=F("run"))
    return live.filter(stuck, run__epoch=F("epoch"), run__job__hold_kind="")


def _is_due(found: Idle, row: RunActivity) -> bool:
    """By the reports received: while none could be received, the job may have worked."""
    return found.release_at is not None and found.release_at <= row.heard_at


def _warn(row: RunActivity, rule: IdleRule, now: datetime) -> None:
    with contextlib.suppress(StaleRun), transaction.atomic():
        lock_job_and_run(row.run.job_id)  # lock the run before its activity, in the same order as reports
        # Only the writer that changes the row writes the event: one for each idle period.
        if not RunActivity.objects.filter(pk=row.pk, warned_at=None).update(warned_at=now):
            return
        row.warned_at = now
        run, job = row.run, row.run.job
        if found := warned_of(job, run, row, rule):
            detail = {"since_at": found.since.isoformat(), "no_step": found.no_step, "epoch": row.epoch}
            text = f"#{job.number} {job.name}: {sentence(row, found)}"
            events.append(kind="idle", job=job, run=run, at=now, text=text, detail=detail)
            transaction.on_commit(wake.publish)


def _suspend(row: RunActivity, rule: IdleRule, now: datetime) -> None:
    with contextlib.suppress(StaleRun), transaction.atomic():
        job, run = lock_job_and_run(row.run.job_id)
        current = RunActivity.objects.get(pk=row.pk)
        # Reported, moved, put on hold or extended meanwhile: the next call sees the new state.
        found = warned_of(job, run, current, rule) if run.pk == row.pk and not job.hold_kind else None
        if found is None or not _is_due(found, current):
            return
        goes_on = f"resumes from its checkpoint (step {run.checkpoint_step:,} or later)"
        starts = "is started again, and finds the files that it saved" if run.uses_sdk is False else goes_on
        text = f"Parked as idle: {what_it_does(current, found)}. Release it and it {starts}."
        place_hold(job, run, kind=HoldKind.IDLE, actor=None, text=text, now=now)
        RunActivity.objects.filter(pk=row.pk).update(warned_at=None, postponed_until=None, postponements=0)


def extend_job(*, actor: User, job: Job, now: datetime) -> Job:
    """Leave an idle job its GPUs for the time that the rule grants. Raises JobConflict if nothing can be postponed."""
    with transaction.atomic():
        job, run = lock_job_and_run(job.pk)
        row = RunActivity.objects.select_for_update().filter(pk=run.pk).first()
        rule = rule_of(job.cluster)
        found = warned_of(job, run, row, rule) if not job.hold_kind else None
        if row is None or found is None:
            raise JobConflict.of("job", "It is not warned of being idle: there is nothing to put off.", "not_idle")
        if found.release_at is None:
            raise JobConflict.of("job", "This job will not be suspended for being idle.", "never_parked")
        if row.postponements >= rule.extensions_max:
            message = f"It was given more time {row.postponements} times, which is as often as the rule allows."
            raise JobConflict.of("job", message, "extended_too_often")
        _extend(row, job, actor, rule, now)
    return job


def _extend(row: RunActivity, job: Job, actor: User, rule: IdleRule, now: datetime) -> None:
    until, times = now + timedelta(seconds=rule.extension_s), row.postponements + 1
    RunActivity.objects.filter(pk=row.pk).update(postponed_until=until, postponements=times)
    text = f"#{job.number} {job.name} keeps its GPUs until {until:%Y-%m-%d %H:%M} UTC at least: {actor} asked for it"
    detail = {"until_at": until.isoformat(), "times": times, "at_most": rule.extensions_max}
    events.append(kind="idle_extended", job=job, run=row.run, at=now, text=text, detail=detail)
    audit_for_others(actor, job, "job.extend", {"until": until.isoformat()})
    transaction.on_commit(wake.publish)


@transaction.atomic
def set_idle_rule(*, actor: User, cluster: Cluster, values: dict[str, Any]) -> IdleRule:
    """Replace the whole rule; it also applies to jobs that are idle already."""
    cluster = Cluster.objects.select_for_update().get(pk=cluster.pk)
    before = rule_of(cluster)
    detail = {"before": {name: getattr(before, name) for name in RULE}, "after": values}
    rule, _ = IdleRule.objects.update_or_create(cluster=cluster, defaults=values)
    record_audit(actor=actor, action="idle_rule.set", target=cluster.name, detail=detail)
    transaction.on_commit(wake.publish)
    return rule
