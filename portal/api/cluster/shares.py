"""Priorities of waiting jobs and the tree of fair shares."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.utils import timezone
from pydantic import Field
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts.models import Project, User
from accounts.selectors import visible_projects
from portal.api.http.access import Access
from portal.api.http.inputs import ClusterPageQuery, PageQuery, Query, Word
from portal.api.http.named import named_cluster, named_project
from portal.api.http.operations import operation, signed_in
from portal.api.http.pagination import offset_links
from portal.api.shapes import fairness as shapes
from portal.core.times import iso
from portal.history.shares import points_of
from portal.jobs.access import access_job
from portal.readmodels.queue import priorities
from portal.readmodels.queue.priorities import in_tree_order


class TreeQuery(ClusterPageQuery):
    project: Word | None = Field(None, description="Key of a project: it and all below it.")


def _top(user: User, query: TreeQuery) -> Project | None:
    return named_project(user, query.project) if query.project else None


class PrioritiesView(APIView):
    @operation(
        "list_priorities", shapes.PriorityPage, access=Access.SIGNED_IN, tag="shares", query=TreeQuery, problems=(404,)
    )
    def get(self, request: Request, query: TreeQuery) -> Response:
        """My projects' waiting jobs in order of priority, with every factor. Like `sprio -l`."""
        user, now = signed_in(request), timezone.now()
        found = priorities.priorities_of(user, named_cluster(query), now, project=_top(user, query))
        rows, links = _page(request, query, found.rows)
        results = priorities.describe_priorities(found, rows)
        return Response({**links, "in_force": found.in_force, "at": iso(now), "results": results})


class SharesView(APIView):
    @operation("list_shares", shapes.SharePage, access=Access.SIGNED_IN, tag="shares", query=TreeQuery, problems=(404,))
    def get(self, request: Request, query: TreeQuery) -> Response:
        """My projects and their users with shares, decayed usage and factor. Like `sshare -a`."""
        user, now = signed_in(request), timezone.now()
        found = priorities.shares_of(user, named_cluster(query), now, project=_top(user, query))
        rows, links = _page(request, query, found.rows)
        head = {"in_force": found.in_force, "at": iso(now), "form": found.form}
        return Response({**links, **head, "results": priorities.describe_shares(found, rows)})


class HistoryQuery(TreeQuery):
    days: int = Field(14, ge=1, le=400, description="How far back.")


class ShareHistoryView(APIView):
    @operation(
        "list_share_history",
        shapes.ShareHistory,
        access=Access.SIGNED_IN,
        tag="shares",
        query=HistoryQuery,
        problems=(404,),
    )
    def get(self, request: Request, query: HistoryQuery) -> Response:
        """History of my projects' shares, usage and factors, in the order of the project tree."""
        user, now = signed_in(request), timezone.now()
        mine = visible_projects(user)
        if top := _top(user, query):
            mine = mine.filter(ancestry__contains=[top.pk])
        rows, links = _page(request, query, in_tree_order(mine.order_by("key")))
        points = points_of(named_cluster(query).pk, [one.pk for one in rows], query.days, now)
        results = [{"project": {"key": one.key, "name": one.name}, "points": points[one.pk]} for one in rows]
        return Response({**links, "from_at": iso(now - timedelta(days=query.days)), "results": results})


class JobPriorityView(APIView):
    @operation("get_job_priority", shapes.JobPriority, access=Access.VIEWER, tag="shares", path=["job"])
    def get(self, request: Request, job: str, query: Query) -> Response:
        """A waiting job's priority, its components, and its development over the next days."""
        found = access_job(signed_in(request), job)
        return Response(priorities.describe_job_priority(found.cluster, found, timezone.now()))


def _page(request: Request, query: PageQuery, rows: list[Any]) -> tuple[list[Any], dict[str, Any]]:
    offset = int(query.cursor[1:]) if query.cursor else 0
    return rows[offset : offset + query.limit], offset_links(request, offset, query.limit, len(rows))
