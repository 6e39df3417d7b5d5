"""Arrays of jobs: shown and cancelled as one. They are submitted as a job file with the key `array`."""

from __future__ import annotations

from typing import Any

from django.utils import timezone
from drf_spectacular.utils import OpenApiExample
from pydantic import Field
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from portal.api.http.access import Access
from portal.api.http.inputs import Body, PageQuery, Query, Word
from portal.api.http.named import named_project
from portal.api.http.operations import operation, signed_in
from portal.api.http.pagination import take_page
from portal.api.shapes.job_pages import ArrayCancelled, JobArrayDetail, JobArrayPage
from portal.jobfile.fields import MAX_ARRAY
from portal.jobs.access import access_array, visible_arrays, visible_jobs
from portal.lifecycle.cancel import cancel_array, limit_array
from portal.readmodels.jobs.arrays import array_cost, describe_arrays

LIMIT = OpenApiExample("Four at once", {"max_running": 4}, request_only=True)


class ArraysQuery(PageQuery):
    project: Word | None = Field(None, description="Key of a project.")


class ArrayLimit(Body):
    max_running: int | None = Field(ge=1, le=MAX_ARRAY, description="Null: as many as there is room for.")


def _limit(answer: dict[str, Any]) -> dict[str, Any]:
    """The editable part of an array; the rest of its answer changes by itself."""
    return {"max_running": answer["max_running"]}


class ArraysView(APIView):
    @operation("list_arrays", JobArrayPage, access=Access.SIGNED_IN, tag="jobs", query=ArraysQuery, problems=(404,))
    def get(self, request: Request, query: ArraysQuery) -> Response:
        """Arrays of my projects, newest first."""
        jobs = visible_jobs(signed_in(request))
        rows = visible_arrays(signed_in(request))
        if query.project is not None:
            project = named_project(signed_in(request), query.project)
            rows = rows.filter(pk__in=jobs.filter(project=project).order_by().values("array"))
        arrays, links = take_page(request, rows, query)
        return Response({**links, "results": describe_arrays(arrays, jobs)})


class ArrayView(APIView):
    @operation("get_array", JobArrayDetail, access=Access.VIEWER, tag="jobs", path=["array"], version=_limit)
    def get(self, request: Request, array: int, query: Query) -> Response:
        """One array, with the number of its jobs in each state and their total cost."""
        return Response(_one(request, array))

    @operation(
        "patch_array",
        JobArrayDetail,
        access=Access.MEMBER,
        tag="jobs",
        path=["array"],
        body=ArrayLimit,
        problems=(403,),
        examples=[LIMIT],
    )
    def patch(self, request: Request, array: int, query: Query, body: ArrayLimit) -> Response:
        """Change how many of its jobs may hold GPUs at once; running jobs continue."""
        row, _ = access_array(signed_in(request), array, write=True)
        limit_array(actor=signed_in(request), array=row, max_running=body.max_running)
        return Response(_one(request, array))


class ArrayCancelView(APIView):
    @operation("cancel_array", ArrayCancelled, access=Access.MEMBER, tag="jobs", path=["array"], problems=(403,))
    def post(self, request: Request, array: int, query: Query) -> Response:
        """End all of its jobs that have not ended. A second call changes nothing."""
        _, jobs = access_array(signed_in(request), array, write=True)
        cancelled = cancel_array(actor=signed_in(request), jobs=jobs)
        return Response({"cancelled": cancelled, "array": _one(request, array)})


def _one(request: Request, number: int) -> dict[str, Any]:
    array, jobs = access_array(signed_in(request), number)
    return describe_arrays([array], jobs)[0] | {"cost": array_cost(jobs, timezone.now())}
