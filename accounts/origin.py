"""Origin of a request: for the audit log, written by services that know nothing about requests."""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from asgiref.sync import iscoroutinefunction
from django.http import HttpRequest, HttpResponseBase
from django.utils.decorators import sync_and_async_middleware

HEADER = "X-Request-ID"
_GIVEN = re.compile(r"[A-Za-z0-9._-]{1,64}")


@dataclass
class Origin:
    """`token` is the prefix of the accepted API token, empty for a session; `about` is for the log."""

    address: str
    request_id: str
    session_key: Callable[[], str | None]
    token: str = ""
    about: dict[str, str | int] = field(default_factory=dict)

    @property
    def credential(self) -> str:
        """An identifier of the token or session that grants no access."""
        if self.token:
            return f"token ek_{self.token}"
        key = self.session_key()
        return f"session {hashlib.sha256(key.encode()).hexdigest()[:12]}" if key else ""


_origin: ContextVar[Origin | None] = ContextVar("origin", default=None)


def current() -> Origin | None:
    """The current request, None in a command or a task."""
    return _origin.get()


def note_token(prefix: str) -> None:
    if origin := _origin.get():
        origin.token = prefix


def address_of(request: Any) -> str:
    return str(request.META.get("REMOTE_ADDR") or "")


def _begin(request: HttpRequest) -> Origin:
    given = request.headers.get(HEADER, "")
    request_id = given if _GIVEN.fullmatch(given) else secrets.token_hex(8)
    return Origin(address_of(request), request_id, lambda: _session_key(getattr(request, "session", None)))


def _session_key(session: Any) -> str | None:
    return session.session_key if session is not None else None


@contextmanager
def of_socket(scope: Mapping[str, Any]) -> Iterator[None]:
    """The origin of a WebSocket; `scope` from Channels' middleware."""
    address = str((scope.get("client") or ("",))[0])
    token = _origin.set(Origin(address, secrets.token_hex(8), lambda: _session_key(scope.get("session"))))
    try:
        yield
    finally:
        _origin.reset(token)


@sync_and_async_middleware
def origin_middleware(get_response: Callable[[HttpRequest], Any]) -> Callable[[HttpRequest], Any]:
    """Gives each request an id, for its answer and its audit entries."""
    if iscoroutinefunction(get_response):

        async def answer_async(request: HttpRequest) -> HttpResponseBase:
            origin = _begin(request)
            token = _origin.set(origin)
            try:
                response: HttpResponseBase = await get_response(request)
            finally:
                _origin.reset(token)
            response.headers[HEADER] = origin.request_id
            return response

        return answer_async

    def answer(request: HttpRequest) -> HttpResponseBase:
        origin = _begin(request)
        token = _origin.set(origin)
        try:
            response: HttpResponseBase = get_response(request)
        finally:
            _origin.reset(token)
        response.headers[HEADER] = origin.request_id
        return response

    return answer
