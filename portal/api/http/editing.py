"""Concurrent edits: ETag identifies what was read, If-Match requires that it has not changed (RFC 9110).

A resource that can be read and changed has a tag of its answer. Before a change with If-Match the answer is computed
again and compared, one such change at a time. A change without If-Match is accepted unconditionally.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from django.db import connection, transaction
from django.http import HttpResponseBase
from django.utils.http import parse_etags
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from portal.api.http.errors import TITLES, Refused

Version = Callable[[Any], Any]
CHANGES = ("put", "patch", "delete")
CHANGED = "It was changed after you read it: fetch it again and look at what is new."


def is_edited(view: APIView) -> bool:
    return hasattr(view, "get") and any(hasattr(view, method) for method in CHANGES)


def only(*names: str) -> Version:
    """Only the editable members of an answer."""
    return lambda answer: [answer.get(name) for name in names]


def tag(response: HttpResponseBase, version: Version | None) -> None:
    """Sets the ETag. With `version` its first half only covers the editable part: the rest changes by itself."""
    if not isinstance(response, Response) or response.status_code != 200:
        return
    whole = _digest(response.data)
    response["ETag"] = f'"{_digest(version(response.data))}.{whole}"' if version else f'"{whole}"'


def _digest(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@contextmanager
def unchanged(view: APIView, method: str, request: Request, where: dict[str, Any]) -> Iterator[None]:
    """Raises Refused(412) if If-Match does not contain the present tag."""
    given = request.headers.get("If-Match")
    if not given or given.strip() == "*" or method not in CHANGES or not is_edited(view):
        yield
        return
    with transaction.atomic():
        wanted = {_editable(etag) for etag in parse_etags(given)}
        # a second editor of the same version waits here, then sees the first one's change
        with connection.cursor() as cursor:
            for version in sorted(wanted):
                cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [version])
        current = view.get(request, **where)["ETag"]  # type: ignore[attr-defined]
        if _editable(current) not in wanted:
            raise Refused(412, CHANGED)
        yield


def _editable(etag: str) -> str:
    return etag.strip('"').partition(".")[0]


IF_MATCH = {
    "in": "header",
    "name": "If-Match",
    "schema": {"type": "string", "maxLength": 1000},
    "description": "ETag of what you read. 412 where it was changed since; left out, the change is made in any case.",
}
ETAG = {"schema": {"type": "string"}, "description": "For If-Match, and for If-None-Match (304)."}


def document_editing(result: dict[str, Any], generator: Any, request: Any, public: bool) -> dict[str, Any]:
    """A drf-spectacular hook: adds this to the OpenAPI document."""
    for methods in result["paths"].values():
        changes = [methods[name] for name in CHANGES if name in methods]
        if "get" not in methods or not changes:
            continue
        methods["get"]["responses"]["200"]["headers"] = {"ETag": ETAG}
        for change in changes:
            change.setdefault("parameters", []).append(IF_MATCH)
            problem = change["responses"]["400"] | {"description": TITLES[412]}
            change["responses"] = dict(sorted({**change["responses"], "412": problem}.items()))
    return result
