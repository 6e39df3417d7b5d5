"""The list of jobs as CSV, in full."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime
from typing import Any

from channels.db import database_sync_to_async
from django.db.models import QuerySet
from django.http import HttpResponseBase, StreamingHttpResponse
from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from rest_framework.request import Request
from rest_framework.views import APIView

from portal.api.http.access import Access
from portal.api.http.operations import operation, signed_in
from portal.api.http.sheets import csv_lines, harmless
from portal.api.jobs.filters import JobsExportQuery, find_jobs
from portal.jobs.access import visible_jobs
from portal.jobs.models import Job
from portal.readmodels.jobs.summary import describe_jobs

MAX_ROWS = 200_000
_BATCH = 1_000
COLUMNS = (
    "number", "name", "array", "project", "owner", "state", "reason", "program", "partition", "qos", "priority",
    "labels", "gpus_min", "gpus_max", "gpu_share_percent", "gpus_held", "accelerator_type", "total_steps", "step",
    "progress", "steps_per_s", "slowdown", "queueing_s", "launching_s", "running_s", "rescales", "cost", "currency",
    "submitted_at", "started_at", "finished_at", "exit", "emulated", "cluster",
)  # fmt: skip


class JobsExportView(APIView):
    @operation(
        "export_jobs",
        OpenApiTypes.STR,
        media_type="text/csv",
        access=Access.SIGNED_IN,
        tag="jobs",
        query=JobsExportQuery,
        problems=(404,),
    )
    def get(self, request: Request, query: JobsExportQuery) -> HttpResponseBase:
        """The list as CSV, at most 200,000 rows. Labels are written as `key=value`, separated by blanks."""
        user, now = signed_in(request), timezone.now()
        rows = find_jobs(visible_jobs(user), query, user)
        stream = _stream(rows, newest_first=query.ordering.startswith("-"), now=now)
        headers = {"Content-Disposition": f'attachment; filename="jobs-{now:%Y-%m-%d}.csv"'}
        return StreamingHttpResponse(stream, content_type="text/csv; charset=utf-8", headers=headers)


async def _stream(rows: QuerySet[Job], *, newest_first: bool, now: datetime) -> AsyncIterator[str]:
    """In batches: memory and database connection are not held, however many jobs there are."""
    yield csv_lines([COLUMNS])
    last, left = None, MAX_ROWS
    while left > 0:
        text, last, count = await database_sync_to_async(_batch)(rows, last, min(_BATCH, left), newest_first, now)
        yield text
        left -= count
        if count < _BATCH:
            return


def _batch(
    rows: QuerySet[Job], last: int | None, size: int, newest_first: bool, now: datetime
) -> tuple[str, int | None, int]:
    """Jobs after the one with the number `last`: their lines, the last number, and their count."""
    if last is not None:
        rows = rows.filter(number__lt=last) if newest_first else rows.filter(number__gt=last)
    found = list(rows.order_by("-number" if newest_first else "number")[:size])
    return csv_lines(map(_line, describe_jobs(found, now))), found[-1].number if found else last, len(found)


def _line(job: dict[str, Any]) -> list[Any]:
    array, held, exit_ = job["array"], job["allocation"], job["exit"]
    texts = [
        job["name"],
        f"{array['number']}_{array['index']}" if array else "",
        job["project"]["key"],
        job["owner"]["email"] if job["owner"] else "",
        job["state"],
        job["reason"]["text"],
        job["model_type"] or job["command"] or "",
        job["partition"] or "",
        job["qos"] or "",
    ]
    return [
        job["number"],
        *map(harmless, texts),
        job["priority"],
        harmless(" ".join(f"{key}={value}" for key, value in job["labels"].items())),
        job["gpus"]["min"],
        job["gpus"]["max"],
        job["gpus"]["share_percent"],
        held["count"] if held else 0,
        held["type"] if held else "",
        job["total_steps"],
        job["step"],
        job["progress"],
        job["throughput"]["steps_per_s"],
        job["slowdown"],
        *(job["times"][name] for name in ("queueing_s", "launching_s", "running_s")),
        job["resizes"],
        job["cost"]["so_far"],
        job["cost"]["currency"],
        job["submitted_at"],
        job["started_at"],
        job["finished_at"],
        exit_["reason"] if exit_ else "",
        job["emulated"],
        harmless(job["cluster"]["name"]),
    ]
