"""Runs without a report for too long."""

from __future__ import annotations

import logging
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import Exists, OuterRef, Q

from portal.core import job_log
from portal.jobs import spooled_runs
from portal.jobs.loops import Loop, LoopName, of_run
from portal.jobs.models import Cluster, Hold, Run
from portal.lifecycle.allocations import end_assignments, end_processes
from portal.lifecycle.end_run import fail, upload_s
from portal.lifecycle.transitions import StaleRun, Transition, kept_why, move, move_possible
from scheduling.domain.reason_codes import ReasonCode
from scheduling.errors import InvalidTransition
from scheduling.executors.base import ExitInfo, Renewals
from scheduling.lifecycle import ON_OVERDUE, TIME_LIMIT_S, Event, State

logger = logging.getLogger(__name__)

#: A run that fetches data may launch for as long as its runner reports so, at least every two minutes; fetching has its
#: own limit.
FETCHING_SILENCE = timedelta(seconds=300)


def renewals(cluster_id: int) -> Renewals:
    """When the last report was received of each launch that has trained and may still have processes. Before it trains,
    it need not report; a run that has ended for the portal is ordered to stop."""
    held = Exists(Hold.objects.filter(run=OuterRef("pk"), epoch=OuterRef("epoch"), during__upper_inf=True))
    trained = Run.objects.filter(held, job__cluster_id=cluster_id, ready_at__isnull=False, last_report_seq__gte=0)
    found = trained.values_list("pk", "epoch", "last_report_at")
    return {(str(run_id), epoch): at.timestamp() for run_id, epoch, at in found if at is not None}


def advance_clock(*, cluster_id: int, now: datetime) -> None:
    """Transitions caused by time alone: protections that ended and states that lasted too long."""
    runs = Run.objects.select_related("job").filter(job__cluster_id=cluster_id)
    loop = Loop(LoopName.OVERDUE, cluster_id)
    protected = runs.filter(state=State.RUNNING_PROTECTED, protected_until__lte=now)
    over = Event.PROTECTION_ENDED
    move_possible(
        [
            Transition(run, over, f"#{run.job.number} {run.job.name} is no longer protected", kept_why(run))
            for run in protected
        ],
        now,
        loop,
    )
    back_at = Cluster.objects.values_list("engine_back_at", flat=True).get(pk=cluster_id)
    for state, event in ON_OVERDUE.items():
        limit_s = TIME_LIMIT_S[state]
        assert limit_s is not None
        if state is State.CHECKPOINTING:
            limit_s += upload_s(cluster_id)
        if back_at is not None and back_at > now - timedelta(seconds=limit_s):
            continue  # while the engine was unreachable nothing could move
        overdue = runs.filter(state=state, state_since__lt=now - timedelta(seconds=limit_s))
        fetches = ~Q(fetching="") & Q(last_report_at__gte=now - FETCHING_SILENCE)
        for run in overdue.exclude(reason_token=ReasonCode.PREPARING).exclude(fetches):
            loop.run(of_run(run), _overdue, run, event, limit_s, now)


def _overdue(run: Run, event: Event, limit_s: float, now: datetime) -> None:
    state, name = State(run.state), f"#{run.job.number} {run.job.name}"
    if spooled_runs.is_pending(run.pk, run.epoch):
        return
    try:
        with transaction.atomic():
            if event is Event.FAIL:
                in_words = state.value.lower().replace("_", " ")
                fail(run, ExitInfo("launch_failed", message=f"More than {limit_s:.0f} s in {in_words}."), now)
            elif event is Event.UNASSIGNED:
                end_assignments(run, now)
                text = f"{name} is queued again: its GPUs did not become free in {limit_s:.0f} s"
                move(run, event, at=now, text=text)
            else:
                end_processes(run, now)
                text = f"{name} wrote no checkpoint in {limit_s:.0f} s and continues from step {run.checkpoint_step:,}"
                move(run, event, at=now, text=text)
    except (StaleRun, InvalidTransition) as error:
        logger.info("%s is no longer overdue: %s", name, error, extra=job_log.of_run(run))
