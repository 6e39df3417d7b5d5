"""Bounds request bodies before the framework takes them in: it would put any length on disk first."""

from __future__ import annotations

import json
import re
from typing import cast

from asgiref.typing import ASGI3Application, ASGIReceiveCallable, ASGIReceiveEvent, ASGISendCallable, HTTPScope, Scope

_UPLOAD = re.compile(r"/api/v1/projects/[^/]+/bundles")


class _TooLarge(Exception):
    """More came than may come."""


class BodyLimit:
    """Answers 413 to a body that says it is too large, or turns out to be; uploads of code may be larger."""

    def __init__(self, application: object, *, limit: int, upload_limit: int) -> None:
        self._application = cast("ASGI3Application", application)
        self._limit, self._upload_limit = limit, upload_limit

    async def __call__(self, scope: Scope, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
        if scope["type"] != "http":
            await self._application(scope, receive, send)
            return
        limit = self._upload_limit if _UPLOAD.fullmatch(scope["path"]) else self._limit
        try:
            if _declared(scope) > limit:
                raise _TooLarge
            await self._application(scope, _bounded(receive, limit), send)
        except _TooLarge:
            await _refuse(send, limit)


def _declared(scope: HTTPScope) -> int:
    given = dict(scope["headers"]).get(b"content-length", b"")
    return int(given) if given.isdigit() else 0


def _bounded(receive: ASGIReceiveCallable, limit: int) -> ASGIReceiveCallable:
    taken = 0

    async def bounded() -> ASGIReceiveEvent:
        nonlocal taken
        event = await receive()
        if event["type"] == "http.request":
            taken += len(event.get("body", b""))
            if taken > limit:
                raise _TooLarge
        return event

    return bounded


async def _refuse(send: ASGISendCallable, limit: int) -> None:
    detail = f"The body may have {limit:,} bytes at most."
    problem = {
        "type": "about:blank",
        "title": "Too large",
        "status": 413,
        "detail": detail,
        "errors": [],
    }
    body = json.dumps(problem).encode()
    headers = [(b"content-type", b"application/problem+json"), (b"content-length", str(len(body)).encode())]
    headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": 413, "headers": headers, "trailers": False})
    await send({"type": "http.response.body", "body": body, "more_body": False})
