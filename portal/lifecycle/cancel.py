"""Cancels jobs."""

from __future__ import annotations

import contextlib

from django.db import transaction
from django.db.models import F, QuerySet
from django.utils import timezone

from accounts.models import User
from accounts.services import record_audit
from portal.core import wake
from portal.jobs.access import in_states
from portal.jobs.loops import Loop, LoopName, of_job
from portal.jobs.models import Job, JobArray, Run
from portal.lifecycle.allocations import end_assignments, end_processes
from portal.lifecycle.locking import audit_for_others
from portal.lifecycle.transitions import StaleRun, move
from portal.snapshot.dependencies import waits_of
from scheduling.lifecycle import LIVE, Event, State


class JobHasEnded(Exception):
    def __init__(self, job: Job) -> None:
        super().__init__(f"#{job.number} has already ended.")


def cancel_job(*, user: User | None, job: Job, reason: str = "") -> Job:
    """End the job now. Idempotent; raises JobHasEnded if it succeeded or failed."""
    now = timezone.now()
    for _ in range(5):
        run = Run.objects.select_related("job").get(job=job, job__run=F("pk"))
        if State(run.state) is State.CANCELLED:
            return job
        if State(run.state) not in LIVE:
            raise JobHasEnded(job)
        who = f" by {user}" if user else ""
        try:
            with transaction.atomic():
                move(run, Event.CANCEL, at=now, text=f"#{job.number} cancelled{who}{reason and ': ' + reason}")
                end_assignments(run, now)
                end_processes(run, now)
                audit_for_others(user, job, "job.cancel", {"reason": reason} if reason else None)
                transaction.on_commit(wake.schedule_round)
        except StaleRun:
            continue
        job.run = run
        return job
    raise StaleRun(f"#{job.number} keeps changing; try again")


def _cancel(job: Job, reason: str) -> None:
    with contextlib.suppress(JobHasEnded, StaleRun):  # another process was faster
        cancel_job(user=None, job=job, reason=reason)


def cancel_unsatisfiable(*, cluster_id: int) -> None:
    """Cancel each with the given reason; jobs that depend on these are found in the next round."""
    never, loop = waits_of(cluster_id).never, Loop(LoopName.UNSCHEDULABLE, cluster_id)
    for job in Job.objects.filter(pk__in=never).order_by("number"):
        loop.run(of_job(job), _cancel, job, never[job.pk])


def cancel_array(*, actor: User, jobs: QuerySet[Job]) -> int:
    """Cancel the jobs that have not ended, last index first, so that none starts meanwhile; returns how many."""
    cancelled = 0
    for job in jobs.filter(in_states(LIVE)).order_by("-array_index"):
        with contextlib.suppress(JobHasEnded, StaleRun):  # another process was faster
            cancel_job(user=actor, job=job)
            cancelled += 1
    return cancelled


def limit_array(*, actor: User, array: JobArray, max_running: int | None) -> None:
    """Set how many of its jobs may hold GPUs at once, from the next round on; running jobs are not stopped."""
    with transaction.atomic():
        array.max_running = max_running
        array.save(update_fields=["max_running"])
        detail = {"max_running": max_running}
        record_audit(actor=actor, action="array.limit", target=f"array {array.number}", detail=detail)
        transaction.on_commit(wake.schedule_round)
