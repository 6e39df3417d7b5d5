"""Submits a job again, with changes: a new job that is linked to the old one."""

from __future__ import annotations

from typing import Any

from accounts.models import User
from portal.core.problems import FieldProblem, Problems
from portal.jobfile.parsing import parse_job_file
from portal.jobfile.schema import JobFile
from portal.jobs.models import Job
from portal.lifecycle.locking import NotAllowed, audit_for_others
from portal.submission.submit import submit_job

LATEST = "latest"


def check_priority(actor: User, job_file: JobFile) -> None:
    if job_file.priority > 0 and not actor.is_superuser:
        raise NotAllowed.of("priority", "may be above 0 for administrators only")


def changed_job_file(actor: User, job: Job, changes: Any) -> JobFile:
    """The job's file with `changes` as a JSON merge patch (RFC 7386), validated as a whole.

    `resume_from` may be `latest`, or only a step: then it refers to the job itself.
    """
    if not isinstance(changes, dict):
        raise Problems([FieldProblem("job file", "must be a mapping of keys to values", "type")])
    changes = dict(changes)
    if "resume_from" in changes:
        changes["resume_from"] = _of_this_job(job, changes["resume_from"])
    base = dict(job.spec)
    if not actor.is_superuser:
        base["priority"] = min(0, base.get("priority", 0))  # what an administrator granted was for that job
    if changes.get("command"):
        base.pop("model_type", None)
    if changes.get("model_type"):
        base.pop("command", None)
    return parse_job_file(_merged(base, changes))


def _of_this_job(job: Job, given: Any) -> Any:
    if given == LATEST:
        return {"job": job.number, "step": None}
    if isinstance(given, dict):
        # replaced, not merged: the old job's own start does not matter here
        step = None if given.get("step") == LATEST else given.get("step")
        return {"job": job.number, **given, "step": step}
    return given


def _merged(before: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    after = {key: value for key, value in before.items() if key not in changes or changes[key] is not None}
    for key, value in changes.items():
        if isinstance(value, dict) and key != "resume_from":
            old = before.get(key)
            after[key] = _merged(old if isinstance(old, dict) else {}, value)
        elif value is not None:
            after[key] = value
    return after


def resubmit_job(
    *, actor: User, job: Job, changes: Any, idempotency_key: str | None = None, source: str = "api"
) -> tuple[Job, bool]:
    """(new job, created). Raises what submitting raises. The caller may read `job` and has checked the right to
    submit."""
    job_file = changed_job_file(actor, job, changes)
    check_priority(actor, job_file)
    made, created = submit_job(
        user=actor, job_file=job_file, idempotency_key=idempotency_key, source=source, resubmit_of=job
    )
    if created:
        audit_for_others(actor, job, "job.resubmit", {"as": made.number})
    return made, created
