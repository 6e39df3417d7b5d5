"""What stands before the framework: who may open a socket from where, and how much may be sent."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from asgiref.sync import async_to_sync, iscoroutinefunction
from asgiref.testing import ApplicationCommunicator
from django.http import HttpRequest, HttpResponseBase
from django.utils.decorators import sync_and_async_middleware

from portal.asgi import application
from portal.web.handler import SynchronousHandler

pytestmark = pytest.mark.usefixtures("embedded_services")
MIB = 1024 * 1024
HOST = (b"host", b"127.0.0.1:8800")


def _open(
    origin: str | None, *more: tuple[bytes, bytes], host: bytes = HOST[1], path: str = "/ws/v1/live"
) -> dict[str, Any]:
    headers = [(b"host", host), *([(b"origin", origin.encode())] if origin is not None else []), *more]
    scope = {
        "type": "websocket", "path": path, "raw_path": path.encode(), "query_string": b"",
        "headers": headers, "subprotocols": [], "client": ("127.0.0.1", 5), "server": ("127.0.0.1", 8800),
    }  # fmt: skip

    async def first_answer() -> dict[str, Any]:
        socket = ApplicationCommunicator(application, scope)
        await socket.send_input({"type": "websocket.connect"})
        answer = dict(await socket.receive_output(5))
        await socket.send_input({"type": "websocket.disconnect", "code": 1000})
        await socket.wait(5)
        return answer

    return async_to_sync(first_answer)()


@pytest.mark.parametrize(
    "origin",
    [
        "https://evil.example", "http://127.0.0.1.evil.example", "null", "nonsense", None, "",
        # Of the portal's host, and of a job on it:
        "http://127.0.0.1:9999", "http://localhost:9999", "http://[::1]:9999", "http://127.0.0.1", "http://localhost",
        "https://127.0.0.1:8800", "https://localhost", "ws://127.0.0.1:8800", "http://2130706433:9999",
        "http://[::1", "http://[", "http://\xe9:8800", "http://127.0.0.1:99999999", "http://127.0.0.1:\u0968",
        "http://127.0.0.1:8800.evil.example", "http://127.0.0.1:8800/", "http://u@127.0.0.1:9999", "http://127.0.0.1:x",
    ],
)  # fmt: skip
def test_a_socket_from_a_foreign_page_is_refused(origin: str | None) -> None:
    assert _open(origin)["type"] == "websocket.close"


@pytest.mark.django_db
@pytest.mark.parametrize("path", ["/ws/v1/events", "/ws/v1/live/", "/", "/api/v1/jobs", "/ws/v1/l\u00efve", "/%00\0"])
def test_a_socket_to_nowhere_is_refused(path: str) -> None:
    assert _open("http://127.0.0.1:8800")["type"] == "websocket.accept"
    assert _open("http://127.0.0.1:8800", path=path)["type"] == "websocket.close"


@pytest.mark.parametrize(
    ("trusted", "origin", "opens"),
    [
        ("https://portal.example.org", "https://portal.example.org", True),
        ("https://portal.example.org", "https://portal.example.org:8443", False),
        ("https://portal.example.org", "http://portal.example.org", False),
        ("https://*.example.org", "https://a.example.org", True),
        ("https://*.example.org", "https://a.example.org:444", False),
        ("https://*.example.org", "https://example.org.evil.example", False),
        ("http://127.0.0.1:9999", "http://127.0.0.1:9999", True),
    ],
)
@pytest.mark.django_db
def test_origins_that_are_listed_open_sockets(trusted: str, origin: str, opens: bool, settings: Any) -> None:
    settings.CSRF_TRUSTED_ORIGINS = [trusted]
    assert (_open(origin)["type"] == "websocket.accept") is opens


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("origin", "said", "opens"),
    [
        ("https://portal.example.org", "https", True),
        ("http://portal.example.org", "https", False),
        ("https://portal.example.org", "http", False),
        ("https://portal.example.org:7788", "https", False),
    ],
)
def test_behind_a_proxy_the_name_in_the_browser_counts(origin: str, said: str, opens: bool, settings: Any) -> None:
    settings.SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
    settings.ALLOWED_HOSTS = ["portal.example.org"]
    answer = _open(origin, (b"x-forwarded-proto", said.encode()), host=b"portal.example.org")
    assert (answer["type"] == "websocket.accept") is opens


@pytest.mark.django_db
@pytest.mark.parametrize("origin", ["http://127.0.0.1:8800", "http://localhost:8800"])
def test_a_socket_from_the_portal_itself_is_accepted(origin: str) -> None:
    assert _open(origin)["type"] == "websocket.accept"


def _post(
    path: str, chunks: list[bytes], *headers: tuple[bytes, bytes], to: Any = application
) -> tuple[int, dict[str, Any], int]:
    """Status and problem, and how many chunks were taken."""
    scope = {
        "type": "http", "http_version": "1.1", "method": "POST", "scheme": "http", "path": path,
        "raw_path": path.encode(), "query_string": b"", "root_path": "", "client": ("127.0.0.1", 5),
        "server": ("127.0.0.1", 8800), "headers": [HOST, (b"content-type", b"application/json"), *headers],
    }  # fmt: skip
    sent: list[dict[str, Any]] = []
    waiting = list(chunks)

    async def receive() -> dict[str, Any]:
        if not waiting:
            await asyncio.Event().wait()  # the client stays for the answer
        return {"type": "http.request", "body": waiting.pop(0), "more_body": bool(waiting)}

    async def send(event: dict[str, Any]) -> None:
        sent.append(event)

    async_to_sync(to)(scope, receive, send)
    body = b"".join(event.get("body", b"") for event in sent[1:])
    return sent[0]["status"], json.loads(body), len(chunks) - len(waiting)


def test_a_body_that_says_it_is_too_large_is_not_read() -> None:
    chunks = [b" " * MIB] * 10
    status, problem, taken = _post("/api/v1/jobs", chunks, (b"content-length", b"%d" % (10 * MIB)))
    assert (status, taken) == (413, 0)
    assert problem["detail"] == "The body may have 4,194,304 bytes at most."


@pytest.mark.parametrize("declared", [[], [(b"content-length", b"10")]])
def test_a_body_in_chunks_is_cut_off_where_it_gets_too_large(declared: list[tuple[bytes, bytes]]) -> None:
    """Also one that is longer than it said."""
    status, problem, taken = _post("/api/v1/jobs", [b" " * MIB] * 10, *declared)
    assert (status, problem["status"], taken) == (413, 413, 5)


@pytest.mark.django_db
def test_bodies_within_the_limit_and_uploads_of_code_get_through() -> None:
    assert _post("/api/v1/jobs", [b" " * MIB] * 4)[0] == 401
    assert _post("/api/v1/projects/vision/bundles", [b" " * MIB] * 10)[0] == 401
    assert _post("/api/v1/simulation-traces", [b" " * MIB] * 10)[0] == 401
    assert _post("/api/v1/projects/vision/bundles/x", [b" " * MIB] * 10)[0] == 413


@pytest.mark.django_db
def test_middleware_that_could_do_without_a_thread_is_not_given_the_choice(settings: Any) -> None:
    """Each change between thread and loop costs more than most of what middleware does."""
    here = f"{__name__}.noting"
    settings.MIDDLEWARE = [here, *settings.MIDDLEWARE, here]
    _ways.clear()
    assert _post("/api/v1/jobs", [b"{}"], to=SynchronousHandler())[0] == 401
    assert _ways == [False, False]


_ways: list[bool] = []


@sync_and_async_middleware
def noting(get_response: Callable[[HttpRequest], Any]) -> Callable[[HttpRequest], Any]:
    """Notes whether what follows it is a coroutine."""

    def answer(request: HttpRequest) -> HttpResponseBase:
        _ways.append(iscoroutinefunction(get_response))
        response: HttpResponseBase = get_response(request)
        return response

    return answer
