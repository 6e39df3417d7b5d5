"""Acts on an array as one."""

from __future__ import annotations

import contextlib

from django.db import transaction
from django.db.models import QuerySet

from accounts.models import User
from accounts.services import record_audit
from portal.core import wake
from portal.jobs.access import in_states
from portal.jobs.models import Job, JobArray
from portal.lifecycle.cancel import JobHasEnded, cancel_job
from portal.lifecycle.transitions import StaleRun
from scheduling.lifecycle import LIVE


def cancel_array(*, actor: User, jobs: QuerySet[Job]) -> int:
    """End those of the jobs that have not ended, last index first, so that none starts meanwhile; how many."""
    cancelled = 0
    for job in jobs.filter(in_states(LIVE)).order_by("-array_index"):
        with contextlib.suppress(JobHasEnded, StaleRun):  # somebody was faster
            cancel_job(user=actor, job=job)
            cancelled += 1
    return cancelled


def limit_array(*, actor: User, array: JobArray, max_running: int | None) -> None:
    """How many of its jobs may hold GPUs at once, effective with the next round; nobody is stopped for it."""
    with transaction.atomic():
        array.max_running = max_running
        array.save(update_fields=["max_running"])
        detail = {"max_running": max_running}
        record_audit(actor=actor, action="array.limit", target=f"array {array.number}", detail=detail)
        transaction.on_commit(wake.schedule_round)
