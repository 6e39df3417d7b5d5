"""Limits request bodies before the framework reads them: it would write any length to disk first."""

from __future__ import annotations

import json
import re
from typing import cast

from asgiref.typing import ASGI3Application, ASGIReceiveCallable, ASGIReceiveEvent, ASGISendCallable, HTTPScope, Scope

_UPLOAD = re.compile(r"/api/v1/(projects/[^/]+/bundles|simulation-traces)")


class BodyLimit:
    """Answers 413 to a body whose declared or actual length is too large; uploads of code and traces may be larger."""

    def __init__(self, application: object, *, limit: int, upload_limit: int) -> None:
        self._application = cast("ASGI3Application", application)
        self._limit, self._upload_limit = limit, upload_limit

    async def __call__(self, scope: Scope, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
        if scope["type"] != "http":
            await self._application(scope, receive, send)
            return
        limit = self._upload_limit if _UPLOAD.fullmatch(scope["path"]) else self._limit
        body = _Body(receive, limit)
        body.too_large = _declared(scope) > limit
        if not body.too_large:
            await self._application(scope, body.receive, send)
        if body.too_large:
            await _refuse(send, limit)


def _declared(scope: HTTPScope) -> int:
    given = dict(scope["headers"]).get(b"content-length", b"")
    return int(given) if given.isascii() and given.isdigit() else 0


class _Body:
    """The incoming body, up to a limit. Beyond it the framework sees a disconnect: it then frees what it has read, and
    sends no answer."""

    def __init__(self, receive: ASGIReceiveCallable, limit: int) -> None:
        self._receive, self._left = receive, limit
        self.too_large = False

    async def receive(self) -> ASGIReceiveEvent:
        event = await self._receive()
        if event["type"] == "http.request":
            self._left -= len(event.get("body", b""))
            if self._left < 0:
                self.too_large = True
                return {"type": "http.disconnect"}
        return event


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
    headers += [(b"cache-control", b"no-store"), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": 413, "headers": headers, "trailers": False})
    await send({"type": "http.response.body", "body": body, "more_body": False})
