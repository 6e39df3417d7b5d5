"""Locks a job with its newest run for a change, and the errors that refuse such a change."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from accounts.models import User
from accounts.services import record_audit
from portal.core.problems import FieldProblem, Problems
from portal.jobs.models import Job, Run
from portal.lifecycle.transitions import StaleRun


class JobConflict(Problems):
    """The request is valid, but the job's present state does not allow it."""

    @classmethod
    def of(cls, field: str, message: str, code: str) -> JobConflict:
        return cls([FieldProblem(field, message, code)])


class NotAllowed(Problems):
    """Only other people may make this change."""

    @classmethod
    def of(cls, field: str, message: str) -> NotAllowed:
        return cls([FieldProblem(field, message, "forbidden")])


def lock_job_and_run(job_id: UUID) -> tuple[Job, Run]:
    """The job and its newest run: the run is locked first, in the same order as in reports and rounds."""
    for _ in range(5):
        run_id = Job.objects.values_list("run_id", flat=True).get(pk=job_id)
        run = Run.objects.select_for_update(of=("self",)).get(pk=run_id)
        jobs = Job.objects.select_related("project", "owner", "model_type", "cluster")
        job = jobs.select_for_update(of=("self",), no_key=True).get(pk=job_id)
        if job.run_id == run.pk:
            run.job = job
            return job, run
    raise StaleRun("The job keeps changing; try again.")


def audit_for_others(actor: User | None, job: Job, action: str, detail: dict[str, Any] | None = None) -> None:
    """Changes of other people's jobs are audited."""
    if actor is not None and actor.pk != job.owner_id:
        record_audit(actor=actor, action=action, target=f"job {job.number}", detail=detail)
