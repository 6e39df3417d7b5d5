"""What a live socket does with each message: whom it lets in, what it tells whom, and when it asks again."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from django.contrib.auth.models import AnonymousUser

from accounts.models import User
from portal.live import websocket
from portal.live.publish import EVERYBODY
from portal.live.websocket import CHECK_S, LOOK_S, MAX_STREAMS, NOT_SIGNED_IN, LiveConsumer

ANA = User(pk=7, is_active=True)


class Layer:
    def __init__(self) -> None:
        self.members: set[str] = set()
        self.calls: list[tuple[str, str]] = []

    async def group_add(self, group: str, channel: str) -> None:
        assert channel == "mine"
        self.calls.append(("add", group))
        self.members.add(group)

    async def group_discard(self, group: str, channel: str) -> None:
        assert channel == "mine"
        self.calls.append(("discard", group))
        self.members.discard(group)


class Tried(LiveConsumer):
    """A socket whose other end is the test."""

    def __init__(self, user: Any = ANA) -> None:
        super().__init__()
        self.scope = {"user": user, "session": type("Session", (), {"session_key": "s1"})(), "path": "/live"}
        self.channel_layer, self.channel_name = Layer(), "mine"
        self.said: list[Any] = []
        self.denied: list[list[str]] = []

    async def accept(self, *_: Any, **__: Any) -> None:
        self.said.append("accepted")

    async def close(self, code: int | None = None, reason: str | None = None) -> None:
        self.said.append(code)

    async def send(self, text_data: str | None = None, bytes_data: bytes | None = None, close: bool = False) -> None:
        self.said.append(json.loads(text_data or ""))

    def _note_denials(self, refused: list[str]) -> None:
        self.denied.append(refused)


class Session:
    """Whom the session stands for now, and what they may see; how often it was asked."""

    def __init__(self) -> None:
        self.user: User | None = ANA
        self.allowed = {"cluster", "project:mine"}
        self.asked: list[str] = []

    def __call__(self, key: str) -> tuple[User | None, set[str]]:
        self.asked.append(key)
        return self.user, self.allowed


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Session:
    made = Session()

    def directly(call: Callable[..., Any], **_: Any) -> Callable[..., Awaitable[Any]]:
        async def asked(*arguments: Any) -> Any:
            return call(*arguments)

        return asked

    monkeypatch.setattr(websocket, "database_sync_to_async", directly)
    monkeypatch.setattr(websocket, "sync_to_async", directly)
    monkeypatch.setattr(websocket, "_session", made)
    monkeypatch.setattr(LiveConsumer, "looked_at", float("-inf"))
    return made


class Clock:
    now = 500.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(websocket, "time", made)
    return made


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> list[float]:
    """When it was said that somebody looks."""
    found: list[float] = []
    monkeypatch.setattr(websocket, "watch", lambda: found.append(clock.now))
    return found


def error(stream: str) -> dict[str, Any]:
    return {"type": "error", "stream": stream, "detail": "There is no such stream."}


async def connected(user: Any = ANA) -> Tried:
    socket = Tried(user)
    await socket.connect()
    return socket


@pytest.mark.parametrize("user", [None, AnonymousUser(), User(pk=8, is_active=False)])
def test_who_is_not_signed_in_is_told_so_and_joins_nothing(session: Session, user: Any) -> None:
    socket = asyncio.run(connected(user))
    assert socket.said == ["accepted", NOT_SIGNED_IN]
    assert (socket.channel_layer.calls, socket.pinging) == ([], None)


def test_a_socket_that_leaves_is_in_no_group_any_more(session: Session, looks: list[float]) -> None:
    async def visit() -> Tried:
        socket = await connected()
        assert socket.channel_layer.members == {EVERYBODY}
        await socket.receive(json.dumps({"subscribe": ["cluster", "project:mine"]}))
        assert len(socket.channel_layer.members) == 3
        await socket.disconnect(1000)
        await asyncio.sleep(0)
        assert socket.pinging is not None
        await asyncio.wait([socket.pinging])
        assert socket.pinging.done()
        return socket

    assert asyncio.run(visit()).channel_layer.members == set()


@pytest.mark.parametrize("text", [None, "", "nonsense", "[]", "{}", '{"subscribe": 5}'])
def test_what_is_no_wish_is_answered_with_what_one_is(session: Session, text: str | None) -> None:
    async def say() -> Tried:
        socket = await connected()
        await socket.receive(text)
        await socket.disconnect(1000)
        return socket

    (_, said) = asyncio.run(say()).said
    assert (said["type"], said["stream"]) == ("error", None)
    assert session.asked == []


def test_each_stream_is_answered_and_only_those_of_the_user_are_joined(session: Session, looks: list[float]) -> None:
    async def say() -> Tried:
        socket = await connected()
        await socket.receive(json.dumps({"subscribe": ["project:theirs", "cluster", 5, None, "project:none"]}))
        await socket.disconnect(1000)
        return socket

    socket = asyncio.run(say())
    assert socket.said[1:] == [
        error("project:theirs"),
        {"type": "subscribed", "stream": "cluster"},
        error("project:none"),
    ]
    assert socket.streams == {"cluster"}
    assert socket.denied == [["project:theirs", "project:none"]]
    assert session.asked == ["s1"]
    assert len(looks) == 1


def test_of_too_many_streams_the_first_count(session: Session, looks: list[float]) -> None:
    session.allowed = {f"project:p{number}" for number in range(MAX_STREAMS + 5)}

    async def say() -> Tried:
        socket = await connected()
        await socket.receive(json.dumps({"subscribe": [f"project:p{number}" for number in range(MAX_STREAMS + 5)]}))
        await socket.disconnect(1000)
        return socket

    socket = asyncio.run(say())
    assert socket.streams == {f"project:p{number}" for number in range(MAX_STREAMS)}
    assert socket.denied == []


@pytest.mark.parametrize("user", [None, User(pk=9, is_active=True)])
def test_a_session_that_ended_or_is_anothers_ends_the_socket(
    session: Session, looks: list[float], user: User | None
) -> None:
    async def say() -> Tried:
        socket = await connected()
        session.user = user
        await socket.receive(json.dumps({"subscribe": ["cluster"]}))
        await socket.disconnect(1000)
        return socket

    socket = asyncio.run(say())
    assert socket.said == ["accepted", NOT_SIGNED_IN]
    assert (socket.streams, looks) == (set(), [])


def test_what_may_be_seen_no_longer_is_left_and_said(session: Session, looks: list[float]) -> None:
    async def say() -> Tried:
        socket = await connected()
        await socket.receive(json.dumps({"subscribe": ["cluster", "project:mine"]}))
        session.allowed = {"cluster", "project:new"}
        assert await socket._still_allowed() == {"cluster", "project:new"}
        await socket.live_numbers({"numbers": {"cluster": 3, "project:mine": 4, "project:new": 5}})
        await socket.live_numbers({"numbers": {"project:mine": 5}})
        await socket.live_message({"text": json.dumps({"type": "diff"})})
        await socket.disconnect(1000)
        return socket

    socket = asyncio.run(say())
    assert socket.said[3:] == [
        error("project:mine"),
        {"type": "numbers", "numbers": {"cluster": 3}},
        {"type": "diff"},
    ]
    assert socket.streams == {"cluster"}


def test_sockets_of_a_process_say_together_that_somebody_looks(
    session: Session, looks: list[float], clock: Clock
) -> None:
    async def look() -> None:
        first, second, idle = [await connected() for _ in range(3)]
        for socket in (first, second):
            socket.streams = {"cluster"}
        await idle._look()
        assert looks == []
        for after_s in (0.0, LOOK_S - 0.5, LOOK_S, LOOK_S + 0.5):
            clock.now = 500.0 + after_s
            await first._look()
            await second._look()
        for socket in (first, second, idle):
            await socket.disconnect(1000)

    asyncio.run(look())
    assert looks == [500.0, 500.0 + LOOK_S]


def test_a_socket_pings_and_asks_now_and_then_whether_it_may_go_on(
    session: Session, looks: list[float], clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    pings = iter([10.0, CHECK_S - 0.5, CHECK_S, CHECK_S + 20, 2 * CHECK_S])
    told = list[int]()

    async def sleep(seconds: float) -> None:
        assert seconds == websocket.PING_S
        told.append(len(session.asked))
        if (after_s := next(pings, None)) is None:
            session.user = None
            clock.now += CHECK_S
        else:
            clock.now = 500.0 + after_s

    async def listen() -> Tried:
        socket = Tried()
        socket.streams, socket.checked_at, socket.user = {"cluster"}, clock.now, ANA
        monkeypatch.setattr(asyncio, "sleep", sleep)
        await socket._ping()
        return socket

    socket = asyncio.run(listen())
    assert told == [0, 0, 0, 1, 1, 2]
    assert [one["type"] for one in socket.said[:-1]] == ["ping"] * 5
    assert socket.said[-1] == NOT_SIGNED_IN
