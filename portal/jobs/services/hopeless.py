"""Jobs that wait for what can no longer happen."""

from __future__ import annotations

import contextlib

from portal.jobs.dependencies import waits_of
from portal.jobs.loops import Loop, LoopName, of_job
from portal.jobs.models import Job
from portal.jobs.services.moves import StaleRun
from portal.jobs.services.submission import JobHasEnded, cancel_job


def cancel_hopeless(*, cluster_id: int) -> None:
    """Each with the sentence that says why; who waits for these in turn is found in the next round."""
    never, loop = waits_of(cluster_id).never, Loop(LoopName.UNSCHEDULABLE, cluster_id)
    for job in Job.objects.filter(pk__in=never).order_by("number"):
        loop.run(of_job(job), _cancel, job, never[job.pk])


def _cancel(job: Job, reason: str) -> None:
    with contextlib.suppress(JobHasEnded, StaleRun):  # somebody was faster
        cancel_job(user=None, job=job, reason=reason)
