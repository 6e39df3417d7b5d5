"""Stale state and events give the same as a fresh fetch; who sees which stream."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
import redis
from asgiref.sync import async_to_sync, sync_to_async
from asgiref.testing import ApplicationCommunicator
from channels.db import database_sync_to_async
from django.conf import settings
from django.contrib.sessions.backends.base import SessionBase
from django.contrib.sessions.backends.db import SessionStore
from django.test import Client
from django.utils import timezone
from hypothesis import given
from hypothesis import strategies as st

from accounts.models import Membership, Project, Quota, User
from accounts.people import deactivate_user
from accounts.sessions import end_sessions
from portal.jobs.models import Job
from portal.live import publish as live
from portal.live import streams as live_state
from portal.live import tasks, websocket
from portal.live.publish import merge_patch, normalise
from portal.live.websocket import LiveConsumer
from tests.portal.world import World

CLUSTER = "live:streams:cluster"
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=4),
    max_leaves=12,
)
json_objects = st.dictionaries(st.text(max_size=2), json_values, max_size=5)


def apply_patch(target: Any, patch: Any) -> Any:
    """RFC 7386, as a client does it."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = apply_patch(result.get(key), value)
    return result


@given(json_objects, json_objects)
def test_a_patch_turns_the_old_state_into_the_new_one(before: Any, after: Any) -> None:
    before, after = normalise(before), normalise(after)
    assert apply_patch(before, merge_patch(before, after)) == after


@pytest.fixture
def fresh_streams(embedded_services: Any) -> None:
    client = redis.Redis.from_url(settings.REDIS_URL)
    for key in client.scan_iter("live:*"):
        client.delete(key)


class Listener:
    """Keeps the diffs of a stream as a client would, by reading what is published."""

    def __init__(self, stream: str) -> None:
        self.stream = stream
        self.seq, self.state = live.snapshot(stream, timezone.now())

    def take(self, message: dict[str, Any]) -> None:
        if message["stream"] == self.stream and message["seq"] > self.seq:
            assert message["seq"] == self.seq + 1, "a gap"
            self.seq, self.state = message["seq"], apply_patch(self.state, message["patch"])


def publish() -> datetime:
    """What is published is as of the answer."""
    redis.Redis.from_url(settings.REDIS_URL).delete("live:published")
    now = timezone.now()
    assert live.publish_changes(now) is None
    return now


@pytest.mark.django_db
def test_nothing_is_worked_out_while_nobody_looks(fresh_streams: None) -> None:
    store = redis.Redis.from_url(settings.REDIS_URL)
    world = World()
    tasks.publish_live()
    assert not store.exists(CLUSTER)
    first, _ = live.snapshot("cluster", timezone.now())
    store.delete("live:watched", "live:published")  # nobody has looked for a while
    job = world.submit()
    tasks.publish_live()
    assert int(store.hget(CLUSTER, "seq") or b"") == first
    later, state = live.snapshot("cluster", timezone.now())
    assert later > first
    assert str(job.number) in state["jobs"]
    store.delete("live:published")
    other = world.submit()
    tasks.publish_live()
    assert str(other.number) in json.loads(store.hget(CLUSTER, "state") or b"")["jobs"]


@pytest.mark.django_db
def test_nobody_reads_what_was_published_before_nobody_looked(fresh_streams: None) -> None:
    store, world = redis.Redis.from_url(settings.REDIS_URL), World()
    for stream in ("cluster", "project:vision"):
        live.snapshot(stream, timezone.now())
    store.delete("live:watched")
    job = world.submit()
    for stream in ("cluster", "project:vision"):
        assert str(job.number) in live.snapshot(stream, timezone.now())[1]["jobs"]


@pytest.mark.django_db
def test_where_nothing_changes_nothing_is_sent(fresh_streams: None, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    world.train(world.submit(gpus={"min": 4}))
    waiting = world.submit(gpus={"min": 4})
    world.round()
    now = timezone.now()
    live.publish_changes(now)
    sent: list[str] = []

    class Layer:
        async def group_send(self, group: str, message: dict[str, Any]) -> None:
            if message["type"] == "live.message":
                sent.append(group)

    monkeypatch.setattr(live, "get_channel_layer", lambda: Layer())
    redis.Redis.from_url(settings.REDIS_URL).delete("live:published")
    live.publish_changes(now)
    assert sent == []
    later = now + timedelta(seconds=20)
    before, after = (live_state.build(at)["project:vision"]["jobs"][str(waiting.number)] for at in (now, later))
    assert before == after


@pytest.mark.django_db
def test_stale_state_and_diffs_equal_a_fresh_fetch(fresh_streams: None, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    streams = [Listener("cluster"), Listener("project:vision")]
    sent: list[dict[str, Any]] = []

    class Layer:
        async def group_send(self, group: str, message: dict[str, Any]) -> None:
            if message["type"] == "live.message":
                sent.append(json.loads(message["text"]))

    monkeypatch.setattr(live, "get_channel_layer", lambda: Layer())
    first = world.submit()
    publish()
    world.train(first)
    publish()
    second = world.submit("slow")
    world.round()
    world.checkpoint(first, 40, "request")
    publish()
    world.gone(first)
    world.round()
    world.ready(second)
    publish()
    world.gone(second, "done", step=1000)
    now = publish()
    for message in sent:
        for stream in streams:
            stream.take(message)
    for stream in streams:
        assert stream.seq > 0
        assert (stream.seq, stream.state) == live.snapshot(stream.stream, timezone.now())
    fresh = normalise(live_state.build(now))
    assert {stream.stream: stream.state for stream in streams} == {
        stream.stream: fresh[stream.stream] for stream in streams
    }


@pytest.mark.django_db
def test_who_missed_the_last_diff_learns_of_it(fresh_streams: None, monkeypatch: pytest.MonkeyPatch) -> None:
    world, store = World(), redis.Redis.from_url(settings.REDIS_URL)
    told: list[dict[str, int]] = []

    class Layer:
        async def group_send(self, group: str, message: dict[str, Any]) -> None:
            if group == live.EVERYBODY:
                told.append(message["numbers"])

    monkeypatch.setattr(live, "get_channel_layer", lambda: Layer())
    publish()
    before = live.snapshot("cluster", timezone.now())[0]
    world.submit()
    publish()
    assert len(told) == 1  # however often is published
    store.delete("live:numbers")
    publish()  # nothing has changed since
    assert told[-1].keys() >= {"cluster", "project:vision"}
    assert told[-1]["cluster"] == live.snapshot("cluster", timezone.now())[0] > before


@pytest.mark.django_db
def test_diffs_come_at_most_twice_a_second(fresh_streams: None) -> None:
    world = World()
    publish()
    world.submit()
    live.publish_changes(timezone.now())
    too_soon_s = live.publish_changes(timezone.now())
    assert too_soon_s is not None
    time.sleep(too_soon_s + 0.05)
    assert live.publish_changes(timezone.now()) is None


@pytest.mark.parametrize(
    ("said", "event_s", "steps_s"),
    [
        (live.Published(), 0, 0),
        (live.Published(last_at=100.0, event_at=100.0, took_s=0.01), 0.04, 2),
        (live.Published(last_at=100.0, event_at=90.0, took_s=0.01), 0, 2),  # it was of steps
        (live.Published(last_at=99.9, before_last_at=99.3, event_at=99.9, took_s=0.01), 0.3, 1.9),
        (live.Published(last_at=99.5, before_last_at=98.0, event_at=99.5, took_s=0.01), 0, 1.5),
        (live.Published(last_at=100.0, before_last_at=99.9, event_at=100.0, took_s=0.8), 3.2, 6.4),
        (live.Published(last_at=100.0, event_at=100.0, took_s=60), 10, 20),
        (live.Published(last_at=4000.0, event_at=4000.0, took_s=0.01), 10, 20),  # the clock was set back
    ],
)
def test_events_are_told_at_once_and_steps_when_there_is_room(
    said: live.Published, event_s: float, steps_s: float
) -> None:
    """At most twice a second, and the more seldom the more there is to publish."""
    assert said.rest_left_s(100.0, calm=False) == pytest.approx(event_s)
    assert said.rest_left_s(100.0, calm=True) == pytest.approx(steps_s)
    assert said.followed_by(100.0, 0.01, calm=True).rest_left_s(100.0, calm=False) <= max(event_s, 1.0)


@pytest.mark.django_db
def test_the_cluster_stream_tells_others_state_count_and_project_only() -> None:
    world = World()
    world.train(world.submit(name="secret-name"))
    text = json.dumps(live_state.build(timezone.now())["cluster"])
    assert "secret-name" not in text
    assert "ana@example.org" not in text
    assert "Vision" in text


@pytest.mark.django_db(transaction=True)
def test_a_socket_gets_only_its_users_streams(fresh_streams: None) -> None:
    user = User.objects.create_user("bo@example.org")
    mine = Project.objects.create(key="mine", name="Mine")
    Project.objects.create(key="theirs", name="Theirs")
    Membership.objects.create(project=mine, user=user)
    async_to_sync(_subscribe)(user, signed_in(user).session)


def signed_in(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


class Socket(ApplicationCommunicator):
    """A WebSocket client on the consumer itself."""

    def __init__(self, user: User | None, session: SessionBase, **scope: Any) -> None:
        scope |= {"type": "websocket", "path": "/ws/v1/live", "user": user, "session": session}
        super().__init__(LiveConsumer.as_asgi(), scope)

    async def connect(self) -> dict[str, Any]:
        await self.send_input({"type": "websocket.connect"})
        return dict(await self.receive_output(5))

    async def say(self, text: str) -> None:
        await self.send_input({"type": "websocket.receive", "text": text})

    async def leave(self) -> None:
        await self.send_input({"type": "websocket.disconnect", "code": 1000})
        await self.wait(5)

    async def hear(self) -> dict[str, Any]:
        return dict(json.loads((await self.receive_output(5))["text"]))


async def _subscribe(user: User, session: SessionBase) -> None:
    socket = Socket(user, session)
    assert (await socket.connect())["type"] == "websocket.accept"
    await socket.say(json.dumps({"subscribe": ["cluster", "project:mine", "project:theirs"]}))
    answers = [await socket.hear() for _ in range(3)]
    assert [a["type"] for a in answers] == ["subscribed", "subscribed", "error"]
    await database_sync_to_async(World)()
    await database_sync_to_async(publish)()
    heard = [await socket.hear() for _ in range(3)]  # the numbers come last
    assert [one["type"] for one in heard] == ["diff", "diff", "numbers"]
    assert heard[-1]["numbers"] == {one["stream"]: one["seq"] for one in heard[:2]}
    await socket.say("nonsense")
    assert (await socket.hear())["type"] == "error"
    await socket.leave()
    assert await sync_to_async(live.is_watched)()


def _sign_out(browser: Client) -> None:
    assert browser.delete("/api/v1/session").status_code == 204


def _end_sessions(browser: Client) -> None:
    end_sessions(User.objects.get())


def _deactivate(browser: Client) -> None:
    deactivate_user(actor=None, user=User.objects.get(), now=timezone.now())


def _set_password(browser: Client) -> None:
    user = User.objects.get()
    user.set_password("another one")
    user.save()


@pytest.mark.parametrize("end", [_sign_out, _end_sessions, _deactivate, _set_password])
@pytest.mark.parametrize("noticed_by", ["ping", "subscribing"])
@pytest.mark.django_db(transaction=True)
def test_a_socket_ends_with_its_session(
    fresh_streams: None, monkeypatch: pytest.MonkeyPatch, noticed_by: str, end: Callable[[Client], None]
) -> None:
    monkeypatch.setattr(websocket, "PING_S", 0.1 if noticed_by == "ping" else 60.0)
    monkeypatch.setattr(websocket, "CHECK_S", 0.0)
    user = User.objects.create_user("bo@example.org", "one")
    browser = signed_in(user)

    async def listen() -> int:
        socket = Socket(user, browser.session)
        await socket.connect()
        await socket.say(json.dumps({"subscribe": ["cluster"]}))
        assert (await socket.hear())["type"] in {"subscribed", "ping"}
        await database_sync_to_async(end)(browser)
        if noticed_by == "subscribing":
            await socket.say(json.dumps({"subscribe": ["cluster"]}))
        while (said := await socket.receive_output(5))["type"] == "websocket.send":
            pass
        return int(said["code"])

    assert async_to_sync(listen)() == websocket.NOT_SIGNED_IN


@pytest.mark.django_db
def test_a_budget_is_told_where_every_project_at_the_top_has_one() -> None:
    world = World()
    below = Project.objects.create(key="detection", name="Detection", parent=world.project)
    other = Project.objects.create(key="speech", name="Speech")

    def budget() -> str | None:
        told = live_state.build(timezone.now(), "cluster")["cluster"]["tiles"]["budget_month"]
        return None if told is None else str(told)

    Quota.objects.create(project=world.project, kind="money", period="month", limit=2_500 * 10**6)
    Quota.objects.create(project=below, kind="money", period="month", limit=10**6)
    Quota.objects.create(project=other, kind="money", period="day", limit=10**6)
    Quota.objects.create(project=other, user=world.user, kind="money", period="month", limit=10**6)
    assert budget() is None
    limit = Quota.objects.create(project=other, kind="money", period="month", limit=99_990_000)
    assert budget() == "2599.99"
    limit.delete()
    Project.objects.filter(pk=other.pk).update(archived_at=timezone.now())
    assert Decimal(budget() or 0) == 2_500


@pytest.mark.django_db
def test_a_socket_without_sign_in_is_closed() -> None:
    async def connect() -> int:
        socket = Socket(None, SessionStore())
        await socket.connect()
        return int((await socket.receive_output(5))["code"])

    assert async_to_sync(connect)() == 4401


@pytest.mark.django_db
def test_one_job_that_cannot_be_described_does_not_stop_the_others(fresh_streams: None) -> None:
    world = World()
    bad, curves, good = world.submit(), world.submit(), world.submit()
    Job.objects.filter(pk=bad.pk).update(spec={**bad.spec, "max_cost": "much"})
    Job.objects.filter(pk=curves.pk).update(spec={**curves.spec, "throughput": {"k1": "fast"}})
    states = live_state.build(timezone.now())
    assert set(states["project:vision"]["jobs"]) == {str(curves.number), str(good.number)}
    assert str(good.number) in states["cluster"]["jobs"]
    world.round()
    assert world.gpus(good) + world.gpus(curves) > 0
