"""Saved views of the list of jobs; users see only their own."""

from __future__ import annotations

from typing import Annotated, Any

from drf_spectacular.utils import OpenApiExample
from pydantic import AfterValidator, Field
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from portal.api.deprecated import with_new_names
from portal.api.http.access import Access
from portal.api.http.inputs import Body, PageQuery, Query
from portal.api.http.operations import operation, signed_in
from portal.api.http.pagination import take_page
from portal.api.http.parsing import JsonParser
from portal.api.jobs.filters import JobsFilter, Ordering
from portal.api.shapes.saved import Column, View, ViewPage
from portal.core.times import iso
from portal.jobfile.fields import OneLine
from portal.jobs.models import SavedView
from portal.submission.saved import check_unbound, own_views, save_view

EXAMPLE = OpenApiExample(
    "What runs of a sweep, by cost",
    {
        "name": "Sweep 7",
        "filters": {"state": ["running", "rescaling"], "label": ["sweep:7"]},
        "columns": ["state", "gpus", "throughput", "cost"],
    },
    request_only=True,
)


Name = Annotated[str, Field(min_length=1, max_length=60), OneLine]


def _once(columns: list[Column]) -> list[Column]:
    return list(dict.fromkeys(columns))


class ViewWish(Body):
    name: Name
    filters: JobsFilter = JobsFilter()
    ordering: Ordering = "-number"
    columns: Annotated[list[Column], AfterValidator(_once)] = Field(
        [], max_length=30, description="Of the page's table, in the page's order; empty: the reader's usual ones."
    )


class ViewsView(APIView):
    parser_classes = [JsonParser]

    @operation("list_views", ViewPage, access=Access.SIGNED_IN, tag="jobs", query=PageQuery)
    def get(self, request: Request, query: PageQuery) -> Response:
        """My saved views of the list of jobs, oldest first."""
        rows = own_views(signed_in(request))
        found, links = take_page(request, rows, query, key="id", newest_first=False)
        return Response({**links, "results": [_describe(view) for view in found]})

    @operation(
        "create_view",
        View,
        access=Access.SIGNED_IN,
        tag="jobs",
        status=201,
        body=ViewWish,
        problems=(403, 409),
        examples=[EXAMPLE],
    )
    def post(self, request: Request, query: Query, body: ViewWish) -> Response:
        """Save filters, order and columns under a name, at most 50. 409 if the name exists."""
        user = signed_in(request)
        check_unbound(user, "a view")
        return Response(_describe(_store(SavedView(owner=user), body)), status=201)


class ViewView(APIView):
    parser_classes = [JsonParser]

    @operation("get_view", View, access=Access.SIGNED_IN, tag="jobs", path=["view"])
    def get(self, request: Request, view: int, query: Query) -> Response:
        """A saved view of mine."""
        return Response(_describe(_own(request, view)))

    @operation(
        "change_view",
        View,
        access=Access.SIGNED_IN,
        tag="jobs",
        path=["view"],
        body=ViewWish,
        problems=(409,),
        examples=[EXAMPLE],
    )
    def put(self, request: Request, view: int, query: Query, body: ViewWish) -> Response:
        """Change name, filters, order or columns. 409 if another view has this name."""
        return Response(_describe(_store(_own(request, view), body)))

    @operation("remove_view", None, access=Access.SIGNED_IN, tag="jobs", status=204, path=["view"])
    def delete(self, request: Request, view: int, query: Query) -> Response:
        """Delete a saved view of mine."""
        _own(request, view).delete()
        return Response(status=204)


def _own(request: Request, view: int) -> SavedView:
    return own_views(signed_in(request)).get(pk=view)


def _store(view: SavedView, body: ViewWish) -> SavedView:
    view.name, view.ordering, view.columns = body.name, body.ordering, list(body.columns)
    view.filters = body.filters.model_dump(mode="json", exclude_defaults=True)
    return save_view(view=view)


def _describe(view: SavedView) -> dict[str, Any]:
    return {
        "id": view.pk,
        "name": view.name,
        "filters": with_new_names(JobsFilter, view.filters),
        "ordering": view.ordering,
        "columns": view.columns,
        "changed_at": iso(view.changed_at),
    }
