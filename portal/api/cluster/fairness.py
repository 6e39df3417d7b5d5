"""Slowdown and relative throughput: now, over time, and of ended jobs."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db.models import QuerySet
from django.utils import timezone
from pydantic import Field
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts.models import Project, User
from accounts.selectors import visible_projects
from portal.api.http.access import Access
from portal.api.http.errors import Refused
from portal.api.http.inputs import At, ClusterPageQuery, ClusterQuery, Word
from portal.api.http.named import named_cluster, named_project
from portal.api.http.operations import operation, signed_in
from portal.api.http.pagination import offset_links
from portal.api.shapes import fairness as shapes
from portal.core.problems import FieldProblem
from portal.core.times import iso
from portal.dashboard.ended import Ended, GroupBy, slowdown_of_ended
from portal.dashboard.fairness import fairness_history, fairness_now
from portal.history.fairness import Asked
from portal.jobs.models.history import By

LONGEST = timedelta(days=3_660)
_PROJECT = "Key of a project: it and all below it."


class NowQuery(ClusterQuery):
    project: Word | None = Field(None, description=_PROJECT)


class FairnessView(APIView):
    @operation(
        "get_fairness", shapes.Fairness, access=Access.SIGNED_IN, tag="fairness", query=NowQuery, problems=(404,)
    )
    def get(self, request: Request, query: NowQuery) -> Response:
        """How evenly jobs are slowed down now: the cluster, my projects and their users, and the most affected jobs."""
        user = signed_in(request)
        return Response(fairness_now(user, named_cluster(query), _projects(user, query.project), timezone.now()))


class SpanQuery(ClusterPageQuery):
    project: Word | None = Field(None, description=_PROJECT)
    from_at: At | None = Field(None, description="By default a day before `to_at`.")
    to_at: At | None = Field(None, description="By default now.")


class HistoryQuery(SpanQuery):
    limit: int = Field(20, ge=1, le=50, description="Series of a page.")
    by: By = Field("project", description="`cluster` is open to all users.")
    points: int = Field(200, ge=2, le=500, description="Points of each series at most.")


class FairnessHistoryView(APIView):
    @operation(
        "list_fairness_history",
        shapes.FairnessHistory,
        access=Access.SIGNED_IN,
        tag="fairness",
        query=HistoryQuery,
        problems=(404,),
    )
    def get(self, request: Request, query: HistoryQuery) -> Response:
        """How evenly jobs were slowed down, lowest relative throughput first."""
        if query.by == "cluster" and query.project:
            wrong = FieldProblem("project", "does not go with by=cluster; use by=project or by=user", "invalid")
            raise Refused(400, f"project {wrong.message}", [wrong])
        from_at, to_at = _span(query, timezone.now(), timedelta(days=1))
        mine = _projects(signed_in(request), query.project).order_by().values_list("pk", flat=True)
        asked = Asked(named_cluster(query).pk, query.by, list(mine), from_at, to_at)
        offset = int(query.cursor[1:]) if query.cursor else 0
        rows, total = fairness_history(asked, offset=offset, limit=query.limit, points=query.points)
        links = offset_links(request, offset, query.limit, total)
        return Response({**links, "from_at": iso(from_at), "to_at": iso(to_at), "results": rows})


class EndedQuery(SpanQuery):
    group_by: GroupBy = Field("project", description="Days and months are those of the site's time zone.")
    from_at: At | None = Field(None, description="By default 30 days before `to_at`.")


class FairnessEndedView(APIView):
    @operation(
        "list_ended_slowdown",
        shapes.EndedPage,
        access=Access.SIGNED_IN,
        tag="fairness",
        query=EndedQuery,
        problems=(404,),
    )
    def get(self, request: Request, query: EndedQuery) -> Response:
        """Slowdown of my projects' finished jobs, the highest median first (days, months: newest)."""
        from_at, to_at = _span(query, timezone.now(), timedelta(days=30))
        mine = _projects(signed_in(request), query.project).order_by().values_list("pk", flat=True)
        offset = int(query.cursor[1:]) if query.cursor else 0
        asked = Ended(named_cluster(query).pk, query.group_by, list(mine), from_at, to_at)
        found = slowdown_of_ended(asked, offset=offset, limit=query.limit + 1)
        links = offset_links(request, offset, query.limit, offset + len(found))
        results = found[: query.limit]
        return Response({**links, "from_at": iso(from_at), "to_at": iso(to_at), "results": results})


def _projects(user: User, key: str | None) -> QuerySet[Project]:
    mine = visible_projects(user)
    return mine.filter(ancestry__contains=[named_project(user, key).pk]) if key else mine


def _span(query: SpanQuery, now: datetime, usual: timedelta) -> tuple[datetime, datetime]:
    to_at = query.to_at or now
    from_at = query.from_at or to_at - usual
    if not from_at < to_at <= from_at + LONGEST:
        wrong = FieldProblem("from_at", "must be before to_at, by ten years at most", "range")
        raise Refused(400, f"from_at {wrong.message}", [wrong])
    return from_at, to_at
