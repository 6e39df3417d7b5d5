"""Ends jobs at their time limits and deadlines."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from uuid import UUID

from django.db import transaction
from django.db.models import Q, Sum

from accounts.pricing import PRODUCTS_PER_UNIT, amount
from portal.accounting.running_cost import CostFacts, cost_facts, so_far_products
from portal.core.money import CURRENCY
from portal.jobs import events, spooled_runs
from portal.jobs.access import in_states
from portal.jobs.job_deadline import deadline_of
from portal.jobs.loops import Item, Loop, LoopName, of_job
from portal.jobs.models import HoldKind, Job, JobEvent, Run
from portal.lifecycle import report_interval
from portal.lifecycle.end_run import fail, upload_s
from portal.lifecycle.locking import lock_job_and_run
from portal.lifecycle.suspend import place_hold
from portal.lifecycle.transitions import StaleRun
from portal.throughput.expected_end import EndFacts, end_facts, expected_end_of
from scheduling.executors.base import ExitInfo
from scheduling.lifecycle import HOLDING, LIVE, TRAINING, State


def deadline_sentence(job: Job, facts: EndFacts) -> str | None:
    """A sentence about the deadline of a live job; empty while it is expected to be met, or unknown."""
    deadline = deadline_of(job)
    if deadline is None or job.run is None or State(job.run.state) not in LIVE:
        return None
    if deadline <= facts.now:
        return f"Its deadline passed at {deadline:%Y-%m-%d %H:%M} UTC; the job continues."
    end = expected_end_of(job, facts)
    if end is None or end <= deadline:
        return None
    return (
        f"It is expected to end at {end:%Y-%m-%d %H:%M} UTC with the GPUs that it has, "
        f"after its deadline of {deadline:%Y-%m-%d %H:%M} UTC."
    )


#: Time for a runner at its max_duration, beyond two reports, to save, end its workers and report.
DURATION_SLACK_S = 120.0


def enforce(*, cluster_id: int, now: datetime) -> None:
    """Suspend jobs that have reached their max_cost, and notify once about deadlines that are, or will be, missed."""
    limited = Q(spec__has_key="max_cost", hold_kind="", run__state__in=[s.value for s in HOLDING])
    timed = Q(spec__has_key="deadline") & ~Q(deadline_told="passed")
    found = Job.objects.filter(in_states(LIVE), limited | timed, cluster_id=cluster_id)
    jobs = list(found.select_related("run", "project", "owner", "model_type"))
    Loop(LoopName.LIMITS, cluster_id).together(jobs, of_job, lambda some: _enforce(some, now))


def _enforce(jobs: Sequence[Job], now: datetime) -> list[Job]:
    costs = cost_facts([job for job in jobs if "max_cost" in job.spec], now)
    ends = end_facts([job for job in jobs if "deadline" in job.spec], now)
    for job in jobs:
        if "max_cost" in job.spec:
            _suspend_if_spent(job, costs)
        if "deadline" in job.spec:
            _notify_deadline(job, ends)
    return list(jobs)


def end_overdue(*, cluster_id: int, now: datetime) -> None:
    """Runners end a job at its max_duration. If a runner fails to, the portal ends it here."""
    training = [state.value for state in TRAINING]
    slack = timedelta(seconds=DURATION_SLACK_S + upload_s(cluster_id) + 2 * report_interval.interval_s())
    found = Job.objects.filter(cluster_id=cluster_id, max_duration_s__isnull=False, run__state__in=training)
    loop = Loop(LoopName.MAX_DURATION, cluster_id)
    for pk, number in found.values_list("pk", "number"):
        loop.run(Item(str(pk), f"#{number}", pk, {"job": number}), _end_if_overdue, pk, slack, now)


def _end_if_overdue(pk: UUID, slack: timedelta, now: datetime) -> None:
    with contextlib.suppress(StaleRun), transaction.atomic():
        job, run = lock_job_and_run(pk)
        overdue = State(run.state) in TRAINING and _is_overdue(job, run, slack, now)
        if overdue and not spooled_runs.is_pending(run.pk, run.epoch):
            text = "Its runner did not end it, so the portal did; what came after its last checkpoint is lost."
            fail(run, ExitInfo("time_limit", step=run.checkpoint_step, message=text), now)


def _is_overdue(job: Job, run: Run, slack: timedelta, now: datetime) -> bool:
    """A changed limit counts from the change: the runner receives it with its next report."""
    limit_s = job.max_duration_s
    if limit_s is None:  # changed meanwhile
        return False
    earlier_s = Run.objects.filter(job=job).aggregate(total=Sum("running_s"))["total"] or 0.0
    if run.state_since + timedelta(seconds=limit_s - earlier_s) + slack > now:
        return False
    return not JobEvent.objects.filter(job=job, kind="changed", at__gt=now - slack).exists()


def _suspend_if_spent(job: Job, costs: CostFacts) -> None:
    limit = Decimal(str(job.spec["max_cost"]))
    spent = so_far_products(job, costs)
    if spent < limit * PRODUCTS_PER_UNIT:
        return
    text = (
        f"It has cost {amount(spent).normalize():f} {CURRENCY} and may cost {limit.normalize():f} {CURRENCY}, and what "
        "it costs while it writes a checkpoint and leaves comes on top. Raise max_cost to let it "
        f"{'go on' if job.run and job.can_restart(job.run) else 'begin anew'}."
    )
    with contextlib.suppress(StaleRun), transaction.atomic():
        job, run = lock_job_and_run(job.pk)
        # changed meanwhile: the next round checks again
        same = Decimal(str(job.spec.get("max_cost", 0))) == limit
        if same and not job.hold_kind and State(run.state) in HOLDING & LIVE:
            place_hold(job, run, kind=HoldKind.COST, actor=None, text=text, now=costs.now)


def _notify_deadline(job: Job, ends: EndFacts) -> None:
    deadline = deadline_of(job)
    notice = "passed" if deadline is not None and deadline <= ends.now else "late"
    text = deadline_sentence(job, ends)
    if text is None or notice == job.deadline_told:
        return
    with transaction.atomic():
        # Only the writer that changes the flag writes the event: one each.
        if Job.objects.filter(pk=job.pk, deadline_told=job.deadline_told).update(deadline_told=notice):
            kind = f"deadline_{notice}"
            events.append(kind=kind, job=job, run=job.run, at=ends.now, text=f"#{job.number} {job.name}: {text}")


def time_left_s(run: Run) -> float | None:
    """The part of the job's max_duration that earlier launches and attempts left for this one."""
    limit_s = run.job.max_duration_s
    if limit_s is None:
        return None
    used_s = Run.objects.filter(job=run.job).aggregate(total=Sum("running_s"))["total"] or 0.0
    if State(run.state) is State.RUNNING and run.ready_at is not None:
        used_s -= (run.state_since - run.ready_at).total_seconds()  # of this launch, while it was protected
    return max(1.0, limit_s - float(used_s))
