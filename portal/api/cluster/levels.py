"""QoS levels."""

from __future__ import annotations

from collections.abc import Sequence

from django.core.exceptions import ValidationError
from drf_spectacular.utils import OpenApiExample
from pydantic import Field
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts.models import KEY, User
from accounts.selectors import visible_projects
from portal.api.http.access import Access
from portal.api.http.inputs import Body, PageQuery, Query, Word
from portal.api.http.operations import operation, signed_in
from portal.api.http.pagination import take_page
from portal.api.http.parsing import JsonParser
from portal.api.http.permissions import readers_and_administrators
from portal.api.shapes.fairness import PreemptMode, Qos, QosPage
from portal.cluster.service_levels import COLUMNS, LIMITS, remove_qos, set_qos
from portal.core.problems import FieldProblem, Problems
from portal.jobs.models import Qos as QosRow

EXAMPLE = OpenApiExample(
    "An urgent level", {"priority": 100, "preempts": ["normal"], "max_gpus_per_user": 4}, request_only=True
)
LIMIT = Field(None, ge=0, le=10**6)


class QosWish(Body):
    priority: int = Field(0, ge=0, le=10**6, description="Against the other levels'.")
    preempts: list[Word] = Field([], max_length=50, description="Levels whose jobs it may preempt.")
    preempt_mode: PreemptMode = "requeue"
    for_everybody: bool = Field(True, description="False: only for the projects named, and those below them.")
    projects: list[Word] = Field([], max_length=200)
    max_gpus: int | None = LIMIT
    max_running_jobs: int | None = LIMIT
    max_gpus_per_user: int | None = LIMIT
    max_running_jobs_per_user: int | None = LIMIT
    is_default: bool = Field(False, description="The level of jobs that name none; it takes the place of another.")


class QosListView(APIView):
    @operation("list_qos", QosPage, access=Access.SIGNED_IN, tag="shares", query=PageQuery)
    def get(self, request: Request, query: PageQuery) -> Response:
        """QoS levels, newest first."""
        found, links = take_page(request, QosRow.objects.prefetch_related("preempts", "projects"), query, key="id")
        return Response({**links, "results": describe(signed_in(request), found)})


class QosView(APIView):
    parser_classes = [JsonParser]
    get_permissions = readers_and_administrators

    @operation("get_qos", Qos, access=Access.SIGNED_IN, tag="shares", path=["level"])
    def get(self, request: Request, level: str, query: Query) -> Response:
        """A QoS level."""
        return Response(describe(signed_in(request), [QosRow.objects.get(name=level)])[0])

    @operation(
        "set_qos",
        Qos,
        access=Access.ADMIN,
        tag="shares",
        path=["level"],
        body=QosWish,
        problems=(403,),
        examples=[EXAMPLE],
        also={201: Qos},
    )
    def put(self, request: Request, level: str, query: Query, body: QosWish) -> Response:
        """Create the level, or replace it. Missing keys get the defaults shown."""
        try:
            KEY(level)
        except ValidationError as error:
            raise Problems([FieldProblem("level", error.messages[0], "invalid")]) from None
        values = body.model_dump(include=set(COLUMNS))
        row, made = set_qos(
            actor=signed_in(request), name=level, values=values, preempts=body.preempts, projects=body.projects
        )
        return Response(describe(signed_in(request), [row])[0], status=201 if made else 200)

    @operation("remove_qos", None, access=Access.ADMIN, tag="shares", status=204, path=["level"], problems=(403, 409))
    def delete(self, request: Request, level: str, query: Query) -> Response:
        """Remove a level without live jobs."""
        remove_qos(actor=signed_in(request), qos=QosRow.objects.get(name=level))
        return Response(status=204)


def describe(user: User, rows: Sequence[QosRow]) -> list[dict[str, object]]:
    """Of the projects that may use a level, only the reader's own."""
    mine = set(visible_projects(user).values_list("pk", flat=True))
    return [
        {
            "name": row.name,
            "priority": row.priority,
            "preempts": sorted(one.name for one in row.preempts.all()),
            "preempt_mode": row.preempt_mode,
            "for_everybody": row.for_everybody,
            "projects": sorted(one.key for one in row.projects.all() if one.pk in mine),
            "is_default": row.is_default,
            **{name: getattr(row, name) for name in LIMITS},
        }
        for row in rows
    ]
