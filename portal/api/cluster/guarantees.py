"""Guaranteed GPUs of projects; other projects may borrow unused ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.db import transaction
from drf_spectacular.utils import OpenApiExample
from pydantic import Field
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts import guarantees
from accounts.guarantee import RECLAIM_WITHIN_S
from accounts.models import Guarantee as Row
from accounts.selectors import visible_projects
from portal.api.http.access import Access
from portal.api.http.errors import Refused
from portal.api.http.inputs import Body, PageQuery, Query, Word
from portal.api.http.operations import operation, signed_in
from portal.api.http.pagination import take_page
from portal.api.http.parsing import JsonParser
from portal.api.shapes.money import Guarantee, GuaranteePage
from portal.core import wake
from portal.core.problems import FieldProblem
from portal.snapshot.guarantees import gpus_there, gpus_used

EXAMPLE = OpenApiExample("Two GPUs", {"gpus": 2, "reclaim_within_s": 300}, request_only=True)


class GuaranteeWish(Body):
    gpus: int = Field(ge=1, le=10**6, description="Of all types together.")
    by_type: dict[Word, int] = Field(
        default_factory=dict, max_length=100, description="How many of them are of one type.", examples=[{"a100": 4}]
    )
    reclaim_within_s: int = Field(
        RECLAIM_WITHIN_S, ge=0, le=86_400, description="After so long protection keeps borrowers no longer."
    )


class GuaranteesView(APIView):
    @operation("list_guarantees", GuaranteePage, access=Access.SIGNED_IN, tag="quotas", query=PageQuery)
    def get(self, request: Request, query: PageQuery) -> Response:
        """Guarantees and their use, newest first. Of projects that I may see."""
        rows = Row.objects.filter(project__in=visible_projects(signed_in(request))).select_related("project")
        found, links = take_page(request, rows, query, key="id")
        return Response({**links, "results": describe(found)})


class GuaranteeView(APIView):
    parser_classes = [JsonParser]

    @operation(
        "get_guarantee",
        Guarantee,
        access=Access.VIEWER,
        tag="quotas",
        path=["project"],
        version=lambda answer: (
            answer["gpus"],
            [(part["type"], part["gpus"]) for part in answer["by_type"]],
            answer["reclaim_within_s"],
        ),
    )
    def get(self, request: Request, project: str, query: Query) -> Response:
        """The project's guarantee; 404 if it has none."""
        return Response(describe([_row(request, project)])[0])

    @operation(
        "set_guarantee",
        Guarantee,
        access=Access.VIEWER,
        scope="admin",
        tag="quotas",
        path=["project"],
        body=GuaranteeWish,
        problems=(403,),
        examples=[EXAMPLE],
        also={201: Guarantee},
    )
    def put(self, request: Request, project: str, query: Query, body: GuaranteeWish) -> Response:
        """Guarantee GPUs to the project. For administrators, and for managers of a project above it that has a
        guarantee. Guarantees of the projects below one never exceed its own, or the cluster's GPUs."""
        actor = signed_in(request)
        there = visible_projects(actor).get(key=project)
        guarantees.check_may_set(actor, there)
        promise = guarantees.Promise(body.gpus, {kind: count for kind, count in body.by_type.items() if count})
        if any(count < 0 for count in body.by_type.values()):
            raise _refused("by_type", "must be numbers of GPUs")
        try:
            row, made = guarantees.set_guarantee(
                actor=actor,
                project=there,
                promise=promise,
                reclaim_within_s=body.reclaim_within_s,
                there=gpus_there(),
            )
        except guarantees.TooMuch as error:
            raise _refused(error.field, str(error)) from None
        transaction.on_commit(wake.schedule_round)
        return Response(describe([row])[0], status=201 if made else 200)

    @operation(
        "remove_guarantee",
        None,
        access=Access.VIEWER,
        scope="admin",
        tag="quotas",
        status=204,
        path=["project"],
        problems=(403,),
    )
    def delete(self, request: Request, project: str, query: Query) -> Response:
        """Remove the project's guarantee; those of projects below it stay."""
        row = _row(request, project)
        guarantees.check_may_set(signed_in(request), row.project)
        guarantees.remove_guarantee(actor=signed_in(request), guarantee=row)
        return Response(status=204)


def _row(request: Request, project: str) -> Row:
    there = visible_projects(signed_in(request)).get(key=project)
    return Row.objects.select_related("project").get(project=there)


def _refused(field: str, text: str) -> Refused:
    return Refused(400, text, [FieldProblem(field, text, "too_much")])


def describe(rows: Sequence[Row]) -> list[dict[str, Any]]:
    used = gpus_used(rows)
    return [
        {
            "project": row.project.key,
            "gpus": row.gpus,
            "by_type": [
                {"type": kind, "gpus": gpus, "used": used[row.project_id][kind]}
                for kind, gpus in sorted(row.by_type.items())
            ],
            "reclaim_within_s": row.reclaim_within_s,
            "used": used[row.project_id].total(),
            "borrowed": max(0, used[row.project_id].total() - row.gpus),
            "unused": max(0, row.gpus - used[row.project_id].total()),
        }
        for row in rows
    ]
