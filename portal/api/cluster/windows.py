"""Maintenance windows and reservations of nodes."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Literal

from django.db.models import Q
from django.utils import timezone
from drf_spectacular.utils import OpenApiExample
from pydantic import Field
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts.models import User
from accounts.selectors import visible_projects
from portal.api.http.access import Access
from portal.api.http.inputs import At, Body, ClusterPageQuery, ClusterQuery, Query, Word
from portal.api.http.named import named_cluster
from portal.api.http.operations import operation, signed_in
from portal.api.http.pagination import take_page
from portal.api.http.parsing import JsonParser
from portal.api.http.permissions import readers_and_administrators
from portal.api.shapes.clusters import Window, WindowPage
from portal.cluster.windows import WindowRequest, add_window, remove_window
from portal.core.times import iso
from portal.jobs.models import NodeWindow

EXAMPLE = OpenApiExample(
    "An afternoon's maintenance of everything",
    {
        "kind": "maintenance",
        "start_at": "2027-03-01T12:00:00Z",
        "end_at": "2027-03-01T18:00:00Z",
        "reason": "new switches",
        "all_nodes": True,
    },
    request_only=True,
)


class WindowsQuery(ClusterPageQuery):
    past: bool | None = Field(None, description="Only those that are over or taken back, or only the others.")


class WantedWindow(Body):
    kind: Literal["maintenance", "reservation"] = Field(description="Closed to all jobs, or open to those named.")
    start_at: At
    end_at: At
    reason: Word = Field("", max_length=200, description="Reason, shown to all users.")
    nodes: list[Word] = Field([], max_length=5_000, description="Names of nodes.")
    accelerator_types: list[Word] = Field([], max_length=50, description="All nodes of these types.")
    all_nodes: bool = Field(False, description="Every node, also one that joins later.")
    projects: list[Word] = Field([], max_length=200, description="Of a reservation: for these and those below them.")
    users: list[Word] = Field([], max_length=200, description="Of a reservation: addresses of people.")


class WindowsView(APIView):
    parser_classes = [JsonParser]
    get_permissions = readers_and_administrators

    @operation("list_windows", WindowPage, access=Access.SIGNED_IN, tag="cluster", query=WindowsQuery)
    def get(self, request: Request, query: WindowsQuery) -> Response:
        """Maintenance windows and reservations, past ones too, newest first."""
        now = timezone.now()
        rows = (
            NodeWindow.objects.filter(cluster=named_cluster(query))
            .select_related("created_by")
            .prefetch_related("projects", "users")
        )
        if query.past is not None:
            past = Q(end_at__lte=now) | Q(removed_at__isnull=False)
            rows = rows.filter(past) if query.past else rows.exclude(past)
        found, links = take_page(request, rows, query, key="id")
        return Response({**links, "results": describe(signed_in(request), found, now)})

    @operation(
        "add_window",
        Window,
        access=Access.ADMIN,
        tag="cluster",
        status=201,
        body=WantedWindow,
        problems=(403,),
        examples=[EXAMPLE],
        query=ClusterQuery,
    )
    def post(self, request: Request, query: ClusterQuery, body: WantedWindow) -> Response:
        """Keep nodes free for a time. No job starts that would run into it."""
        user, now = signed_in(request), timezone.now()
        window = add_window(actor=user, cluster=named_cluster(query), wish=WindowRequest(**body.model_dump()), now=now)
        return Response(describe(user, [window], now)[0], status=201)


class WindowView(APIView):
    parser_classes = [JsonParser]
    get_permissions = readers_and_administrators

    @operation("get_window", Window, access=Access.SIGNED_IN, tag="cluster", path=["window"])
    def get(self, request: Request, window: int, query: Query) -> Response:
        """A window."""
        row = NodeWindow.objects.get(pk=window)
        return Response(describe(signed_in(request), [row], timezone.now())[0])

    @operation(
        "remove_window", None, access=Access.ADMIN, tag="cluster", status=204, path=["window"], problems=(403, 409)
    )
    def delete(self, request: Request, window: int, query: Query) -> Response:
        """Revoke a window, or end it now; it stays in the list."""
        remove_window(actor=signed_in(request), window=NodeWindow.objects.get(pk=window), now=timezone.now())
        return Response(status=204)


def describe(user: User, rows: Sequence[NodeWindow], now: datetime) -> list[dict[str, Any]]:
    """Whom a reservation is for: only the reader's own projects and the reader; administrators see all."""
    mine = set(visible_projects(user).values_list("pk", flat=True))
    return [
        {
            "id": row.pk,
            "kind": row.kind,
            "state": row.state(now),
            "start_at": iso(row.start_at),
            "end_at": iso(row.end_at),
            "reason": row.reason,
            "nodes": row.nodes,
            "accelerator_types": row.accelerator_types,
            "all_nodes": row.all_nodes,
            "projects": sorted(one.key for one in row.projects.all() if one.pk in mine),
            "users": sorted(one.email for one in row.users.all() if user.is_superuser or one.pk == user.pk),
            "created_at": iso(row.created_at),
            "created_by": str(row.created_by) if row.created_by else None,
            "removed_at": iso(row.removed_at),
        }
        for row in rows
    ]
