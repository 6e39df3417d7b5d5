"""Jobs: submit, list, look at, cancel."""

from __future__ import annotations

import re
from typing import Any

from django.utils import timezone
from drf_spectacular.utils import OpenApiExample, OpenApiParameter
from pydantic import Field, RootModel
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts.models import ApiToken, User
from portal.api.http.access import Access
from portal.api.http.errors import Refused
from portal.api.http.inputs import Body, PageQuery, Query, Word
from portal.api.http.operations import operation, signed_in
from portal.api.http.pagination import take_page
from portal.api.http.parsing import JsonParser, YamlParser
from portal.api.jobs.filters import JobsQuery, find_jobs
from portal.api.shapes.jobs import EventPage, Job, JobDetail, JobPage
from portal.core.problems import FieldProblem
from portal.jobfile.parsing import parse_job_file
from portal.jobfile.patch import JobPatch
from portal.jobfile.schema import JobFile
from portal.jobs.access import access_job, events_of, visible_jobs
from portal.jobs.models import Job as JobRow
from portal.lifecycle.cancel import cancel_job
from portal.lifecycle.retries import stop_retrying
from portal.lifecycle.suspend import hold_job, release_job
from portal.live.streams import describe_event
from portal.readmodels.jobs.detail import describe_detail
from portal.readmodels.jobs.summary import describe_jobs
from portal.submission.edit import patch_job
from portal.submission.resubmit import check_priority, resubmit_job
from portal.submission.submit import submit_job
from portal.submission.transfer import move_job

_KEY = re.compile(r"[\x21-\x7e]{1,200}")
IDEMPOTENCY_KEY = OpenApiParameter(
    "Idempotency-Key",
    {"type": "string", "minLength": 1, "maxLength": 200, "pattern": r"^[\x21-\x7e]+$"},
    OpenApiParameter.HEADER,
    description="Makes a repetition safe: the same key answers with the same job.",
)
_JOB_FILE = {
    "name": "resnet-night",
    "project": "vision",
    "model_type": "resnet50",
    "total_steps": 20_000,
    "gpus": {"min": 1, "max": 4},
}
EXAMPLES = [
    OpenApiExample("A catalogue program", _JOB_FILE, request_only=True, media_type=kind)
    for kind in ("application/json", "application/yaml")
]

PATCH = OpenApiExample(
    "More steps, and lower in the queue",
    {"total_steps": 40_000, "nice": 10, "labels": {"stage": "nightly", "draft": None}},
    request_only=True,
)

RESUBMIT = OpenApiExample(
    "With twice the batch, from the newest checkpoint",
    {"batch_size": 512, "name": "resnet-large", "resume_from": "latest"},
    request_only=True,
)


class JobChanges(RootModel[dict[str, Any]]):
    """Keys of the job file as a JSON merge patch (RFC 7386): null removes a key."""


class Destination(Body):
    project: Word = Field(description="Key of the project that the job goes to.")


class JobsView(APIView):
    parser_classes = [JsonParser, YamlParser]

    @operation("list_jobs", JobPage, access=Access.SIGNED_IN, tag="jobs", query=JobsQuery, problems=(404,))
    def get(self, request: Request, query: JobsQuery) -> Response:
        """Jobs of my projects, newest first."""
        rows = find_jobs(visible_jobs(signed_in(request)), query, signed_in(request))
        newest_first = query.ordering.startswith("-")
        jobs, links = take_page(request, rows, query, newest_first=newest_first)
        return Response({**links, "results": describe_jobs(jobs, timezone.now())})

    @operation(
        "submit_job",
        Job,
        access=Access.MEMBER,
        tag="jobs",
        status=201,
        also={200: Job},
        request={"application/json": JobFile, "application/yaml": JobFile},
        parameters=[IDEMPOTENCY_KEY],
        problems=(403, 409),
        examples=EXAMPLES,
    )
    def post(self, request: Request, query: Query) -> Response:
        """Submit a job file. 200 and the first job if the Idempotency-Key was used for the same file before."""
        key = idempotency_key(request)
        job_file = parse_job_file(request.data)
        check_priority(signed_in(request), job_file)
        job, created = submit_job(
            user=signed_in(request), job_file=job_file, idempotency_key=key, source=source_of(request)
        )
        return _made(request, job, created)


def source_of(request: Request) -> str:
    return "api" if isinstance(request.auth, ApiToken) else "web"


def _made(request: Request, job: JobRow, created: bool) -> Response:
    location = request.build_absolute_uri(f"/api/v1/jobs/{job.number}")
    shown = describe_jobs([job], timezone.now())[0] if created else _one(signed_in(request), job)
    return Response(shown, status=201 if created else 200, headers={"Location": location})


def _edited(answer: dict[str, Any]) -> dict[str, Any]:
    """The editable part of a job; the rest of its answer changes by itself."""
    keys = ("name", "labels", "nice", "priority", "total_steps", "max_cost", "max_duration_s", "deadline_at")
    return {key: answer[key] for key in keys}


class JobView(APIView):
    @operation("get_job", JobDetail, access=Access.VIEWER, tag="jobs", path=["job"], version=_edited)
    def get(self, request: Request, job: str, query: Query) -> Response:
        """One job with its job file, attempts, checkpoints and throughput curves."""
        return Response(describe_detail(access_job(signed_in(request), job), timezone.now()))

    @operation(
        "patch_job",
        Job,
        access=Access.MEMBER,
        tag="jobs",
        path=["job"],
        body=JobPatch,
        problems=(403, 409),
        examples=[PATCH],
    )
    def patch(self, request: Request, job: str, query: Query, body: JobPatch) -> Response:
        """Change what may still be changed, effective at once. A larger max_cost releases a job that was suspended
        because of it."""
        row = access_job(signed_in(request), job, write=True)
        return Response(_one(signed_in(request), patch_job(actor=signed_in(request), job=row, patch=body)))


class HoldView(APIView):
    @operation("hold_job", Job, access=Access.MEMBER, tag="jobs", path=["job"], problems=(403, 409))
    def post(self, request: Request, job: str, query: Query) -> Response:
        """Put the job on hold; if it runs, it writes a checkpoint and stops first. 409 if it has ended."""
        row = hold_job(actor=signed_in(request), job=access_job(signed_in(request), job, write=True))
        return Response(_one(signed_in(request), row))


class ReleaseView(APIView):
    @operation("release_job", Job, access=Access.MEMBER, tag="jobs", path=["job"], problems=(403, 409))
    def post(self, request: Request, job: str, query: Query) -> Response:
        """Release a job on hold, so that it queues again. Only administrators may release administrators' holds."""
        row = release_job(actor=signed_in(request), job=access_job(signed_in(request), job, write=True))
        return Response(_one(signed_in(request), row))


class ResubmitView(APIView):
    parser_classes = [JsonParser, YamlParser]

    @operation(
        "resubmit_job",
        Job,
        access=Access.MEMBER,
        tag="jobs",
        path=["job"],
        status=201,
        also={200: Job},
        request={"application/json": JobChanges, "application/yaml": JobChanges},
        parameters=[IDEMPOTENCY_KEY],
        problems=(403, 409),
        examples=[RESUBMIT],
    )
    def post(self, request: Request, job: str, query: Query) -> Response:
        """Submit the job's file again, with changes as a merge patch: a new job, linked to this one.

        `resume_from: latest`, or `{step: ...}`, makes it resume from a checkpoint of this job.
        """
        made, created = resubmit_job(
            actor=signed_in(request),
            job=access_job(signed_in(request), job, write=True),
            changes=request.data or {},
            idempotency_key=idempotency_key(request),
            source=source_of(request),
        )
        return _made(request, made, created)


class MoveView(APIView):
    @operation("move_job", Job, access=Access.MEMBER, tag="jobs", path=["job"], body=Destination, problems=(403, 409))
    def post(self, request: Request, job: str, query: Query, body: Destination) -> Response:
        """Move the job to another project, which pays for it from then on. 409 while it holds GPUs.

        For its owner and for managers of its project, who must also be members of the other one.
        """
        row = access_job(signed_in(request), job, write=True)
        return Response(_one(signed_in(request), move_job(actor=signed_in(request), job=row, key=body.project)))


class CancelView(APIView):
    @operation("cancel_job", Job, access=Access.MEMBER, tag="jobs", path=["job"], problems=(403, 409))
    def post(self, request: Request, job: str, query: Query) -> Response:
        """End the job now. A second call changes nothing; 409 if it has succeeded or failed."""
        row = cancel_job(user=signed_in(request), job=access_job(signed_in(request), job, write=True))
        return Response(_one(signed_in(request), row))


class StopRetryingView(APIView):
    @operation("stop_retrying", Job, access=Access.MEMBER, tag="jobs", path=["job"], problems=(403, 409))
    def post(self, request: Request, job: str, query: Query) -> Response:
        """End a job that waits for its next attempt as failed. 409 if it waits for none."""
        row = stop_retrying(actor=signed_in(request), job=access_job(signed_in(request), job, write=True))
        return Response(_one(signed_in(request), row))


class JobEventsView(APIView):
    @operation("list_job_events", EventPage, access=Access.VIEWER, tag="jobs", path=["job"], query=PageQuery)
    def get(self, request: Request, job: str, query: PageQuery) -> Response:
        """Events of the job, newest first."""
        rows = events_of(access_job(signed_in(request), job))
        events, links = take_page(request, rows, query, key="id")
        return Response({**links, "results": [describe_event(event) for event in events]})


def _one(user: User, job: JobRow) -> dict[str, Any]:
    return describe_jobs([access_job(user, str(job.pk))], timezone.now())[0]


def idempotency_key(request: Request) -> str | None:
    key = request.headers.get("Idempotency-Key")
    if key is not None and not _KEY.fullmatch(key):
        wrong = FieldProblem("Idempotency-Key", "must be 1 to 200 visible ASCII characters", "invalid")
        raise Refused(400, f"Idempotency-Key {wrong.message}", [wrong])
    return key
