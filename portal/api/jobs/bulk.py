"""One action on many jobs, with a result for each."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Annotated, Any, Literal
from uuid import UUID

from drf_spectacular.utils import OpenApiExample
from pydantic import Field, model_validator
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts.models import User
from accounts.selectors import writable_projects
from accounts.services import record_audit
from portal.api.http.access import Access
from portal.api.http.denials import note_hidden_jobs
from portal.api.http.errors import NOT_FOUND, status_of
from portal.api.http.inputs import Body, Query, Word
from portal.api.http.operations import operation, signed_in
from portal.api.jobs.filters import JobsFilter, find_jobs
from portal.api.jobs.jobs import IDEMPOTENCY_KEY, idempotency_key, source_of
from portal.api.shapes.base import Shape
from portal.core.problems import FieldProblem, Problems
from portal.jobfile.fields import Line
from portal.jobfile.patch import JobPatch
from portal.jobs.access import jobs_named, uuid_of, visible_jobs, why_not_writable
from portal.jobs.models import Job
from portal.lifecycle.cancel import cancel_job
from portal.lifecycle.suspend import hold_job, release_job
from portal.submission.edit import patch_job
from portal.submission.resubmit import resubmit_job

MAX_JOBS = 1_000
Result = dict[str, Any]
Act = Callable[[Job], tuple[Job, bool] | None]
EXAMPLE = OpenApiExample(
    "Hold what is queued of a sweep",
    {"action": "hold", "filter": {"project": "vision", "label": ["sweep:7"], "state": ["queued"]}},
    request_only=True,
)


class BulkRequest(Body):
    action: Literal["cancel", "hold", "release", "label", "resubmit"]
    ids: list[Annotated[int, Field(ge=0, lt=10**18)] | Word] | None = Field(
        None, min_length=1, max_length=MAX_JOBS, description="Numbers or UUIDs; either these or a filter."
    )
    filter: JobsFilter | None = Field(None, description="All jobs that a list with it shows, 1,000 at most.")
    labels: dict[str, Line | None] | None = Field(
        None, max_length=50, description="For `label`: merged into each job's; null removes one."
    )
    changes: dict[str, Any] | None = Field(None, description="For `resubmit`: a merge patch of each job file.")

    @model_validator(mode="after")
    def _complete(self) -> BulkRequest:
        if (self.ids is None) == (self.filter is None):
            raise ValueError("give either ids or filter")
        if self.filter is not None and not self.filter.model_dump(exclude_defaults=True):
            raise ValueError("filter: name at least one condition; without any it would match every job that you see")
        if (self.action == "label") != (self.labels is not None):
            raise ValueError("labels go with the action label, and are needed there")
        if self.changes is not None and self.action != "resubmit":
            raise ValueError("changes go with the action resubmit")
        return self


class BulkResult(Shape):
    id: str = Field(description="As it was asked for.")
    number: int | None
    status: int = Field(description="What the same request for this job alone would answer.", examples=[200])
    detail: str | None
    made: int | None = Field(description="Number of the new job, of a resubmission.")


class BulkAnswer(Shape):
    succeeded: int
    refused: int
    results: list[BulkResult]


class BulkView(APIView):
    @operation(
        "change_jobs",
        BulkAnswer,
        access=Access.SIGNED_IN,
        tag="jobs",
        body=BulkRequest,
        parameters=[IDEMPOTENCY_KEY],
        problems=(404,),
        examples=[EXAMPLE],
    )
    def post(self, request: Request, query: Query, body: BulkRequest) -> Response:
        """Cancel, hold, release, label or resubmit up to 1,000 jobs independently; each has its own result.

        With an Idempotency-Key a repeated `resubmit` creates no second job: 200 and the existing job.
        """
        user = signed_in(request)
        asked = _asked(user, body)
        writable = set(writable_projects(user).values_list("pk", flat=True))
        note_hidden_jobs(request, user, [reference for reference, job in asked if job is None])
        act = _act(user, body, idempotency_key(request), source_of(request))
        done: dict[UUID, dict[str, Any]] = {}
        results = []
        for reference, job in asked:
            if job is None:
                results.append(_result(reference, None, 404, NOT_FOUND))
                continue
            if job.pk not in done:  # the same job under another name is not changed twice
                done[job.pk] = _one(act, job, may=job.project_id in writable)
            results.append({**done[job.pk], "id": reference})
        succeeded = sum(result["status"] < 300 for result in results)
        _audit(user, body, results)
        return Response({"succeeded": succeeded, "refused": len(results) - succeeded, "results": results})


def _asked(user: User, body: BulkRequest) -> list[tuple[str, Job | None]]:
    """The requested names, with those jobs that the user may see."""
    rows = visible_jobs(user)
    if body.filter is not None:
        found = list(find_jobs(rows, body.filter, user).order_by("number")[: MAX_JOBS + 1])
        if len(found) > MAX_JOBS:
            message = f"matches more than {MAX_JOBS:,} jobs; narrow it"
            raise Problems([FieldProblem("filter", message, "too_many")])
        return [(str(job.pk), job) for job in found]
    references = [str(reference) for reference in body.ids or []]
    by_name: dict[str, Job] = {}
    for job in rows.filter(jobs_named(references)):
        by_name |= {str(job.number): job, str(job.pk): job}
        if job.array is not None:
            by_name[f"{job.array.number}_{job.array_index}"] = job
    return [(text, by_name.get(str(uuid_of(text) or text))) for text in references]


def _key_of(key: str | None, job: Job) -> str | None:
    """One key covers as many new jobs as there are old ones."""
    return hashlib.sha256(f"{key}/{job.pk}".encode()).hexdigest() if key else None


def _act(user: User, body: BulkRequest, key: str | None, source: str) -> Act:
    """The action on one job; returns (its new job, whether it was created now)."""

    def act(job: Job) -> tuple[Job, bool] | None:
        match body.action:
            case "cancel":
                cancel_job(user=user, job=job)
            case "hold":
                hold_job(actor=user, job=job)
            case "release":
                release_job(actor=user, job=job)
            case "label":
                patch_job(actor=user, job=job, patch=JobPatch(labels=body.labels or {}))
            case "resubmit":
                return resubmit_job(
                    actor=user, job=job, changes=body.changes or {}, idempotency_key=_key_of(key, job), source=source
                )
        return None

    return act


def _one(act: Act, job: Job, *, may: bool) -> dict[str, Any]:
    if not may:
        return _result(str(job.pk), job.number, 403, why_not_writable(job.project))
    try:
        made = act(job)
    except Exception as error:
        status = status_of(error)
        if status is None:
            raise
        return _result(str(job.pk), job.number, status, str(error))
    if made is None:
        return _result(str(job.pk), job.number, 200, None)
    new, created = made
    return _result(str(job.pk), job.number, 201 if created else 200, None, new.number)


def _result(
    reference: str, number: int | None, status: int, detail: str | None, made: int | None = None
) -> dict[str, Any]:
    return {"id": reference, "number": number, "status": status, "detail": detail, "made": made}


def _audit(user: User, body: BulkRequest, results: list[dict[str, Any]]) -> None:
    changed = [result["number"] for result in results if result["status"] < 300]
    detail = {
        "jobs": changed,
        "refused": len(results) - len(changed),
        "filter": body.filter.model_dump(mode="json", exclude_defaults=True) if body.filter else None,
    }
    if changed:
        target = "1 job" if len(changed) == 1 else f"{len(changed)} jobs"
        record_audit(actor=user, action=f"jobs.{body.action}", target=target, detail=detail)
