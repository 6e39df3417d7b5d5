"""What one project or person may not see, at the exits of data where a guard is easily lost."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from ipaddress import ip_network
from typing import Any

import httpx
import pytest
from asgiref.sync import async_to_sync
from channels.db import database_sync_to_async
from channels.layers import get_channel_layer
from django.contrib.auth.models import AnonymousUser
from django.db import connection
from django.utils import timezone

from accounts.models import Membership, Project, User
from accounts.tokens import create_token
from portal.core import wake
from portal.jobfile.parsing import parse_job_file
from portal.jobs import events
from portal.jobs.access import access_array, access_job, visible_arrays, visible_events, visible_jobs
from portal.jobs.models import Job, JobArray, JobEvent
from portal.live import streams, websocket
from portal.live.publish import EVERYBODY, group_name
from portal.notices import addresses
from portal.submission.submit import IdempotencyConflict, submit_job
from portal.submission.transfer import move_job
from tests.portal.api_calls import Api
from tests.portal.live.test_live import Socket, signed_in
from tests.portal.readmodels.test_job_export import lines
from tests.portal.world import World

pytestmark = pytest.mark.django_db
OLD, NEW = "name-before-the-move", "name-after-the-move"


class Moved:
    """A job that went from Vision to Speech, with a person in each."""

    def __init__(self) -> None:
        self.world = World()
        self.there = Project.objects.create(key="speech", name="Speech")
        Membership.objects.create(project=self.there, user=self.world.user)
        self.left, self.joined = self._person("left", self.world.project), self._person("joined", self.there)
        self.job = self.world.submit(name=OLD)
        events.append(kind="notice", job=self.job, run=self.job.run, at=timezone.now(), text=f"{OLD}: of the old one")
        move_job(actor=self.world.user, job=self.job, key="speech")
        Job.objects.filter(pk=self.job.pk).update(name=NEW)
        self.job.refresh_from_db()
        events.append(kind="notice", job=self.job, run=self.job.run, at=timezone.now(), text=f"{NEW}: of the new one")

    @staticmethod
    def _person(name: str, project: Project) -> User:
        user = User.objects.create_user(f"{name}@example.org", "x")
        Membership.objects.create(project=project, user=user, role="viewer")
        return user


@pytest.fixture
def moved() -> Moved:
    return Moved()


def test_events_stay_with_the_project_in_which_they_happened(moved: Moved) -> None:
    left = {event.text for event in visible_events(moved.left)}
    joined = {event.text for event in visible_events(moved.joined)}
    assert any("of the old one" in text for text in left)
    assert not any("of the new one" in text for text in left)
    assert any("of the new one" in text for text in joined)
    assert not any("of the old one" in text for text in joined)
    assert not visible_events(AnonymousUser()).exclude(project=None).exists()


def test_events_of_the_cluster_are_everybodys(moved: Moved) -> None:
    event = events.append(kind="round", text="Round 1", at=timezone.now())
    assert event in visible_events(moved.left)
    assert event in visible_events(moved.joined)


@pytest.mark.parametrize(("project", "name"), [("vision", ""), ("speech", NEW)])
def test_an_event_names_a_job_by_what_its_own_project_may_know(moved: Moved, project: str, name: str) -> None:
    found = JobEvent.objects.filter(job=moved.job, project__key=project)
    assert found
    assert {streams.describe_event(event)["job"]["name"] for event in found} == {name}
    stream = streams.build(timezone.now())[f"project:{project}"]
    assert (NEW in json.dumps(stream)) == bool(name)


def _paths(moved: Moved) -> list[str]:
    number = moved.job.number
    return ["jobs", "jobs?search=name", "events", "live/project:vision", "live/project:speech", "live/cluster"] + [
        f"jobs/{number}{rest}" for rest in ("", "/events", "/why", "/metrics")
    ]


def test_whom_a_job_has_left_hears_nothing_new_of_it(moved: Moved) -> None:
    api = Api(moved.left)
    for path in _paths(moved):
        assert NEW not in api.get(path).text, path
    assert api.get(f"jobs/{moved.job.number}").status == 404


def test_jobs_and_arrays_are_reached_by_those_who_may_see_them_only(moved: Moved) -> None:
    array = moved.world.submit(array={"indices": "0-1"}).array
    assert array is not None
    Job.objects.filter(array=array, array_index=1).update(project=moved.there)
    for user, index in ((moved.left, 0), (moved.joined, 1)):
        found, jobs = access_array(user, array.number)
        assert found == array
        assert [job.array_index for job in jobs] == [index]
        with pytest.raises(PermissionError):
            access_array(user, array.number, write=True)
        with pytest.raises(PermissionError):
            access_job(user, f"{array.number}_{index}", write=True)
        with pytest.raises(Job.DoesNotExist):
            access_job(user, f"{array.number}_{1 - index}")
        assert list(visible_arrays(user)) == [array]
        assert visible_jobs(user).count() == 1 + (user == moved.joined)
    stranger = User.objects.create_user("stranger@example.org", "x")
    assert not visible_arrays(stranger).exists()
    with pytest.raises(JobArray.DoesNotExist):
        access_array(stranger, array.number)
    assert access_array(moved.world.user, array.number, write=True)[1].count() == 2


@pytest.mark.parametrize("active", [True, False])
def test_an_administrator_sees_all_while_active_and_without_a_narrow_token(moved: Moved, active: bool) -> None:
    root = User.objects.create_superuser("root@example.org", "x")
    root.is_active = active
    assert visible_jobs(root).exists() == active
    assert not visible_jobs(AnonymousUser()).exists()


def test_a_key_is_ones_own(moved: Moved) -> None:
    """The same Idempotency-Key of two people stands for two jobs, and says nothing of the other's."""
    bo = moved._person("bo", moved.world.project)
    Membership.objects.filter(user=bo).update(role="member")

    def submit(user: User, **keys: Any) -> tuple[Job, bool]:
        document = {"command": "train", "project": "vision", "total_steps": 10} | keys
        return submit_job(user=user, job_file=parse_job_file(document), idempotency_key="k")

    mine, made = submit(moved.world.user)
    assert made
    other, made = submit(bo)
    assert (made, other.owner) == (True, bo)
    assert submit(moved.world.user) == (mine, False)
    assert submit(bo) == (other, False)
    with pytest.raises(IdempotencyConflict, match=f"#{other.number}"):
        submit(bo, total_steps=11)


@pytest.mark.django_db(transaction=True)
def test_the_scheduler_is_woken_when_the_job_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    world, seen = World(), list[int]()
    monkeypatch.setattr(wake, "schedule_round", lambda *_: seen.append(_committed_jobs()))
    world.submit()
    assert seen == [1]


def _committed_jobs() -> int:
    """As another connection sees it."""

    def count() -> int:
        try:
            return Job.objects.count()
        finally:
            connection.close()

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(count).result(10)


# The live socket -------------------------------------------------------------------------------------------


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("noticed_by", ["ping", "subscribing"])
def test_who_leaves_a_project_hears_nothing_more_of_it(monkeypatch: pytest.MonkeyPatch, noticed_by: str) -> None:
    monkeypatch.setattr(websocket, "PING_S", 0.1 if noticed_by == "ping" else 60.0)
    monkeypatch.setattr(websocket, "CHECK_S", 0.0)
    user = User.objects.create_user("bo@example.org", "x")
    mine = Project.objects.create(key="mine", name="Mine")
    membership = Membership.objects.create(project=mine, user=user)
    session = signed_in(user).session

    async def listen() -> list[str]:
        socket = Socket(user, session)
        await socket.connect()
        await socket.say(json.dumps({"subscribe": ["cluster", "project:mine"]}))
        for _ in range(2):
            assert (await _next(socket))["type"] == "subscribed"
        await database_sync_to_async(membership.delete)()
        if noticed_by == "subscribing":
            await socket.say(json.dumps({"subscribe": ["project:mine"]}))
        assert (await _next(socket))["type"] == "error"
        if noticed_by == "subscribing":
            assert (await _next(socket))["type"] == "error"
        layer = get_channel_layer()
        numbers = {"type": "live.numbers", "numbers": {"cluster": 3, "project:mine": 4}}
        await layer.group_send(EVERYBODY, numbers)
        for stream in ("project:mine", "cluster"):
            message = {"type": "live.message", "text": json.dumps({"type": "diff", "stream": stream})}
            await layer.group_send(group_name(stream), message)
        heard = [await _next(socket) for _ in range(2)]
        await socket.leave()
        return [json.dumps(one) for one in heard]

    heard = async_to_sync(listen)()
    assert len(heard) == 2
    assert not any("project:mine" in text for text in heard)


async def _next(socket: Socket) -> dict[str, Any]:
    while (said := await socket.hear())["type"] == "ping":
        pass
    return said


# Where webhooks may go -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("address", "reached"),
    [
        ("10.1.2.3", True),
        ("::ffff:10.1.2.3", True),
        ("64:ff9b::a01:203", True),
        ("11.1.2.3", True),
        ("::ffff:192.168.0.1", False),
        ("64:ff9b::c0a8:1", False),
        ("192.168.0.1", False),
        ("::ffff:224.0.0.1", False),
        ("::ffff:93.184.215.14", True),
        ("64:ff9b::5db8:d70e", True),
    ],
)
def test_an_address_inside_of_another_is_the_one_that_is_meant(
    address: str, reached: bool, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.EVENKEEL_WEBHOOK_NETWORKS = (ip_network("10.0.0.0/8"),)

    async def look_up(host: str) -> list[str]:
        return [address]

    monkeypatch.setattr(addresses, "_look_up", look_up)
    url = httpx.URL("https://hooks.example.org/x")
    if reached:
        assert asyncio.run(addresses.address_of(url)) == address
    else:
        with pytest.raises(addresses.NotReachable):
            asyncio.run(addresses.address_of(url))


def test_what_is_listed_may_be_reached_without_encryption_and_nothing_else(
    settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.EVENKEEL_WEBHOOK_NETWORKS = (ip_network("10.0.0.0/8"),)
    found: list[str] = []

    async def look_up(host: str) -> list[str]:
        return found

    monkeypatch.setattr(addresses, "_look_up", look_up)
    found[:] = ["10.0.0.1"]
    assert asyncio.run(addresses.address_of(httpx.URL("http://hooks.example.org/x"))) == "10.0.0.1"
    found[:] = ["93.184.215.14"]
    with pytest.raises(addresses.NotReachable):
        asyncio.run(addresses.address_of(httpx.URL("http://hooks.example.org/x")))


def test_who_waits_no_longer_for_a_name_is_not_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    go, failed = threading.Event(), list[Any]()

    def look(*_: Any, **__: Any) -> list[Any]:
        go.wait(20)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("93.184.215.14", 0))]

    async def leave() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: failed.append(context))
        before = set(threading.enumerate())
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await addresses.address_of(httpx.URL("https://hooks.example.org/x"))
        looking = set(threading.enumerate()) - before
        go.set()
        for thread in looking:
            await asyncio.to_thread(thread.join)
        await asyncio.sleep(0)
        assert len(looking) == 1

    monkeypatch.setattr(socket, "getaddrinfo", look)
    asyncio.run(leave())
    assert failed == []


def test_a_token_of_one_project_reads_events_of_no_other(moved: Moved) -> None:
    user = moved.world.user
    token = create_token(user=user, name="ci", project=moved.there)[1]
    texts = Api(token=token).get("events").text
    assert "of the new one" in texts
    assert "of the old one" not in texts


@pytest.mark.django_db(transaction=True)
def test_exports_have_what_the_lists_have() -> None:
    moved = Moved()
    numbers = {user.email: [line["number"] for line in lines(user)] for user in (moved.left, moved.joined)}
    assert numbers == {moved.left.email: [], moved.joined.email: [str(moved.job.number)]}
