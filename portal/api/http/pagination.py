"""Keyset pagination: the cost of a page does not depend on its position, and new rows shift nothing."""

from __future__ import annotations

from typing import Any, TypeVar

from django.db.models import Model, QuerySet
from rest_framework.request import Request
from rest_framework.utils.urls import replace_query_param

from portal.api.http.inputs import PageQuery


def offset_links(request: Request, offset: int, limit: int, total: int) -> dict[str, Any]:
    """Links of a list that is computed as a whole."""

    def link(at: int | None) -> str | None:
        return None if at is None else replace_query_param(request.build_absolute_uri(), "cursor", f"n{at}")

    following = offset + limit if offset + limit < total else None
    return {"next": link(following), "previous": link(max(0, offset - limit) if offset else None)}


R = TypeVar("R", bound=Model)


def take_page(
    request: Request, rows: QuerySet[R], query: PageQuery, *, key: str = "number", newest_first: bool = True
) -> tuple[list[R], dict[str, Any]]:
    """The rows of the page in `query`, and its links. `key` is a unique integer column."""
    backwards = query.cursor is not None and query.cursor[0] == "p"
    if query.cursor is not None:
        comparison = "lt" if newest_first != backwards else "gt"
        rows = rows.filter(**{f"{key}__{comparison}": int(query.cursor[1:])})
    order = f"-{key}" if newest_first != backwards else key
    found = list(rows.order_by(order)[: query.limit + 1])
    more, found = len(found) > query.limit, found[: query.limit]
    if backwards:
        found.reverse()
    following, preceding = (True, more) if backwards else (more, query.cursor is not None)

    def link(wanted: bool, direction: str, row: int) -> str | None:
        if not (wanted and found):
            return None
        cursor = f"{direction}{getattr(found[row], key)}"
        return replace_query_param(request.build_absolute_uri(), "cursor", cursor)

    return found, {"next": link(following, "n", -1), "previous": link(preceding, "p", 0)}
