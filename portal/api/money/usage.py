"""Usage: GPU-hours and cost by project, user, job, day, month or type."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import date, datetime, timedelta
from typing import Annotated, Any

from channels.db import database_sync_to_async
from django.http import HttpResponseBase, StreamingHttpResponse
from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from pydantic import AfterValidator, Field
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts.models import User
from accounts.selectors import visible_projects
from accounts.usage import GroupBy, Question
from portal.api.http.access import Access
from portal.api.http.errors import Refused
from portal.api.http.inputs import Address, PageQuery, Query, Word, known_era
from portal.api.http.named import named_project
from portal.api.http.operations import operation, signed_in
from portal.api.http.pagination import offset_links
from portal.api.http.sheets import csv_lines, harmless
from portal.api.shapes.money import UsagePage
from portal.core.money import CURRENCY
from portal.core.problems import FieldProblem
from portal.dashboard.usage import usage_rows, usage_total

LONGEST = timedelta(days=10 * 366)
_BATCH = 5_000
#: Columns added later follow the others.
_USE = ("measured_gpu_hours", "used_gpu_hours", "emulated")


Day = Annotated[date, AfterValidator(known_era)]


class UsageFilters(Query):
    group_by: GroupBy = Field("project", description="A project's row is that of all its subtree.")
    from_day: Day | None = Field(None, description="First day, in the site's time zone; by default of to_day's month.")
    to_day: Day | None = Field(None, description="Last day, itself included; by default today.")
    project: Word | None = Field(None, description="Key of a project: it and all below it.")
    user: Address | None = Field(None, description="`me`, or the email of a user.")


class UsageQuery(UsageFilters, PageQuery):
    pass


class UsageView(APIView):
    @operation("get_usage", UsagePage, access=Access.SIGNED_IN, tag="usage", query=UsageQuery, problems=(404,))
    def get(self, request: Request, query: UsageQuery) -> Response:
        """Usage of my projects, the most costly first (days and months: newest first), including present occupancy."""
        now = timezone.now()
        question = _question(signed_in(request), query, now)
        offset = int(query.cursor[1:]) if query.cursor else 0
        found = usage_rows(question, now, offset=offset, limit=query.limit + 1)
        return Response(
            {
                **offset_links(request, offset, query.limit, offset + len(found)),
                "currency": CURRENCY,
                "from_day": question.first,
                "to_day": question.last,
                "results": found[: query.limit],
            }
        )


class UsageExportView(APIView):
    @operation(
        "export_usage",
        OpenApiTypes.STR,
        media_type="text/csv",
        access=Access.SIGNED_IN,
        tag="usage",
        query=UsageFilters,
        problems=(404,),
    )
    def get(self, request: Request, query: UsageFilters) -> HttpResponseBase:
        """The same as CSV, all rows, with a total.

        The last row, `total`, is summed exactly and counts each job once, although rows of projects overlap. GPU-hours
        by type are written as `type=hours`, separated by blanks.
        """
        now = timezone.now()
        question = _question(signed_in(request), query, now)
        headers = {"Content-Disposition": f'attachment; filename="usage-{question.first}-{question.last}.csv"'}
        return StreamingHttpResponse(_stream(question, now), content_type="text/csv; charset=utf-8", headers=headers)


def _question(user: User, query: UsageFilters, now: datetime) -> Question:
    """Raises Refused for a project that the user may not see, and for days in the wrong order."""
    today = now.astimezone(timezone.get_default_timezone()).date()
    last = query.to_day or today
    first = query.from_day or last.replace(day=1)
    if not first <= last <= first + LONGEST:
        wrong = FieldProblem("from_day", "must not be after to_day, nor more than ten years before it", "range")
        raise Refused(400, f"from_day {wrong.message}", [wrong])
    projects = visible_projects(user)
    if query.project:
        top = named_project(user, query.project)
        projects = projects.filter(ancestry__contains=[top.pk])
    return Question(
        group_by=query.group_by,
        project_ids=list(projects.order_by("pk").values_list("pk", flat=True)),
        first=first,
        last=last,
        user_ids=_users(user, query.user),
    )


def _users(user: User, wanted: str | None) -> list[int] | None:
    """An unknown person has no usage: whether the person exists is not disclosed."""
    if wanted is None:
        return None
    if wanted == "me":
        return [user.pk]
    return list(User.objects.filter(email=wanted).values_list("pk", flat=True))


async def _stream(question: Question, now: datetime) -> AsyncIterator[str]:
    """In batches: however many groups there are, memory holds one batch."""
    yield csv_lines([["key", "label", "jobs", "gpu_hours", "cost", "currency", "gpu_hours_by_type", *_USE]])
    offset = 0
    while True:
        rows = await database_sync_to_async(usage_rows)(question, now, offset=offset, limit=_BATCH)
        yield csv_lines(map(_line, rows))
        offset += len(rows)
        if len(rows) < _BATCH:
            break
    yield csv_lines([_line(await database_sync_to_async(usage_total)(question, now))])


def _line(row: dict[str, Any]) -> list[object]:
    by_type = " ".join(f"{one['type']}={one['gpu_hours']}" for one in row["by_type"])
    known = [
        harmless(row["key"]),
        harmless(row["label"]),
        row["jobs"],
        row["gpu_hours"],
        row["cost"],
        CURRENCY,
        by_type,
    ]
    return known + [row[name] for name in _USE]
