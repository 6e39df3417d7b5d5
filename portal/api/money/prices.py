"""Prices and discounts."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Any, Literal

from django.db.models import Q
from django.utils import timezone
from drf_spectacular.utils import OpenApiExample
from pydantic import Field, model_validator
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts.models import Discount as DiscountRow
from accounts.models import Project
from accounts.models import Rate as RateRow
from accounts.pricing import from_micro
from accounts.rates import NotInThePast, set_discount, set_rate
from accounts.selectors import visible_projects
from portal.api.http.access import Access
from portal.api.http.errors import Refused
from portal.api.http.inputs import At, Body, ClusterQuery, PageQuery, Query, Word
from portal.api.http.named import check_accelerator_type, check_cluster, named_cluster, named_project
from portal.api.http.operations import operation, signed_in
from portal.api.http.pagination import take_page
from portal.api.http.parsing import JsonParser
from portal.api.http.permissions import readers_and_administrators
from portal.api.shapes.money import Discount, DiscountPage, Rate, RatePage
from portal.core.money import CURRENCY
from portal.core.problems import FieldProblem
from portal.core.times import iso
from portal.jobfile.fields import Amount

START = Field(None, description="By default now; never in the past, and after the newest that is known.")
RATE = OpenApiExample(
    "A GPU-hour", {"resource": "gpu", "accelerator_type": "titan_xp", "price_per_hour": "0.60"}, request_only=True
)
DISCOUNT = OpenApiExample("A quarter off", {"project": "vision", "percent": "25"}, request_only=True)


class PricesQuery(PageQuery):
    ended: bool | None = Field(None, description="False: those in force and to come; true: those that were.")


class RatesQuery(PricesQuery):
    resource: Literal["gpu", "cpu", "memory"] | None = None
    accelerator_type: Word | None = None
    cluster: Word | None = Field(None, max_length=60, description="Name of a cluster; empty: those of all clusters.")


class RateWish(Body):
    resource: Literal["gpu", "cpu", "memory"] = "gpu"
    accelerator_type: str | None = Field(
        None, pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,59}$", description="Of GPUs, and needed there."
    )
    cluster: Word | None = Field(
        None,
        description="Where it counts instead of the price for all clusters. Null: for all others.",
    )
    price_per_hour: Amount = Field(
        ge=0, le=10**9, decimal_places=6, description="Of one GPU, one CPU or one GiB of memory.", examples=["0.60"]
    )
    valid_from_at: At | None = START

    @model_validator(mode="after")
    def _typed(self) -> RateWish:
        if (self.resource == "gpu") != bool(self.accelerator_type):
            raise ValueError("accelerator_type: name the type of GPUs; CPUs and memory have none")
        return self


class RatesView(APIView):
    parser_classes = [JsonParser]
    get_permissions = readers_and_administrators

    @operation("list_prices", RatePage, access=Access.SIGNED_IN, tag="prices", query=RatesQuery)
    def get(self, request: Request, query: RatesQuery) -> Response:
        """Present, past and future prices, newest first."""
        check_cluster(query.cluster)
        given = {"resource": query.resource, "accelerator_type": query.accelerator_type, "cluster": query.cluster}
        rows = RateRow.objects.filter(**{name: value for name, value in given.items() if value is not None})
        found, links = take_page(request, rows.filter(*_ended(query)), query, key="id")
        return Response({**links, "results": [_rate(row) for row in found]})

    @operation(
        "create_price",
        Rate,
        access=Access.ADMIN,
        tag="prices",
        status=201,
        body=RateWish,
        problems=(403, 409),
        examples=[RATE],
    )
    def post(self, request: Request, query: Query, body: RateWish) -> Response:
        """A new price; the one in force ends when it begins. 409 if that would be in the past."""
        check_accelerator_type(body.accelerator_type)
        cluster = named_cluster(ClusterQuery(cluster=body.cluster)).name if body.cluster else ""
        try:
            rate = set_rate(
                actor=signed_in(request),
                resource=body.resource,
                accelerator_type=body.accelerator_type or "",
                cluster=cluster,
                price_micro_per_hour=int(body.price_per_hour * 10**6),
                valid_from=body.valid_from_at,
            )
        except NotInThePast as error:
            raise _past(error) from None
        return Response(_rate(rate), status=201)


class DiscountsQuery(PricesQuery):
    project: Word | None = Field(None, description="Key of a project.")


class DiscountWish(Body):
    project: Word = Field(description="Key of the project.", examples=["vision"])
    percent: Amount = Field(ge=0, le=100, decimal_places=2, description="0 ends one.", examples=["25"])
    valid_from_at: At | None = START


class DiscountsView(APIView):
    parser_classes = [JsonParser]
    get_permissions = readers_and_administrators

    @operation(
        "list_discounts", DiscountPage, access=Access.SIGNED_IN, tag="prices", query=DiscountsQuery, problems=(404,)
    )
    def get(self, request: Request, query: DiscountsQuery) -> Response:
        """Discounts of my projects and of those above them, newest first."""
        mine = visible_projects(signed_in(request))
        if query.project:
            mine = mine.filter(pk=named_project(signed_in(request), query.project).pk)
        above = {level for chain in mine.values_list("ancestry", flat=True) for level in chain}
        rows = DiscountRow.objects.filter(project__in=above).select_related("project")
        found, links = take_page(request, rows.filter(*_ended(query)), query, key="id")
        return Response({**links, "results": [_discount(row) for row in found]})

    @operation(
        "create_discount",
        Discount,
        access=Access.ADMIN,
        tag="prices",
        status=201,
        body=DiscountWish,
        problems=(403, 404, 409),
        examples=[DISCOUNT],
    )
    def post(self, request: Request, query: Query, body: DiscountWish) -> Response:
        """A new discount of a project and of all below it that have none of their own. 409 if it would begin in the
        past."""
        try:
            discount = set_discount(
                actor=signed_in(request),
                project=Project.objects.get(key=body.project),
                percent_hundredths=int(body.percent * 100),
                valid_from=body.valid_from_at,
            )
        except NotInThePast as error:
            raise _past(error) from None
        return Response(_discount(discount), status=201)


def _ended(query: PricesQuery) -> list[Q]:
    if query.ended is None:
        return []
    now = timezone.now()
    return [Q(valid_to__lte=now) if query.ended else Q(valid_to=None) | Q(valid_to__gt=now)]


def _past(error: NotInThePast) -> Refused:
    wrong = FieldProblem("valid_from_at", str(error), "past")
    return Refused(409, f"valid_from_at {error}", [wrong])


def _rate(row: RateRow) -> dict[str, Any]:
    return {
        "id": row.pk,
        "resource": row.resource,
        "accelerator_type": row.accelerator_type or None,
        "cluster": row.cluster or None,
        "price_per_hour": str(from_micro(row.price_micro_per_hour)),
        "currency": CURRENCY,
        **_validity(row.valid_from, row.valid_to),
    }


def _discount(row: DiscountRow) -> dict[str, Any]:
    return {
        "id": row.pk,
        "project": row.project.key,
        "percent": str(Decimal(row.percent_hundredths).scaleb(-2)),
        **_validity(row.valid_from, row.valid_to),
    }


def _validity(valid_from: datetime, valid_to: datetime | None) -> dict[str, str | None]:
    return {"valid_from_at": iso(valid_from), "valid_to_at": iso(valid_to)}
