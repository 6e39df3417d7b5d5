"""Logs over HTTP, and that nothing but logs can be read."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.conf import settings
from django.test import AsyncClient

from accounts.models import ApiToken, Membership, User
from accounts.sessions import end_sessions
from accounts.tokens import create_token, revoke_token
from portal.api.http import standing
from portal.jobs.models import Job, Run
from portal.lifecycle.cancel import cancel_job
from portal.storage import log_files as files
from portal.storage.log_files import RunLog
from portal.storage.log_tail import Follower
from tests.portal.api_calls import Api
from tests.portal.world import World

pytestmark = pytest.mark.django_db


@pytest.fixture
def world(settings: Any, tmp_path: Path) -> World:
    settings.EVENKEEL_DATA = tmp_path
    return World()


@pytest.fixture
def job(world: World) -> Job:
    return world.submit()


def folder(job: Job, epoch: int = 1) -> Path:
    from django.conf import settings

    path = Path(settings.EVENKEEL_DATA) / "jobs" / str(job.pk) / "runs" / str(job.run_id) / str(epoch) / "logs"
    path.mkdir(parents=True, exist_ok=True)
    return path


def write(job: Job, text: str | bytes, epoch: int = 1, name: str = "rank0.log") -> None:
    (folder(job, epoch) / name).write_bytes(text.encode() if isinstance(text, str) else text)


def logs(api: Api, job: Job, query: str = "") -> Any:
    answer = api.get(f"jobs/{job.number}/logs{query}")
    assert answer.status == 200, answer.text
    return answer.json


def test_a_job_that_never_ran_has_an_empty_log(api: Api, job: Job) -> None:
    empty = {"rank": 0, "ranks": [], "offset": 0, "next_offset": 0, "size": 0, "text": "", "complete": False}
    assert logs(api, job) == empty


def test_launches_and_rotated_parts_are_one_log(api: Api, job: Job) -> None:
    write(job, "a\n", 1, "rank0.log.2")
    write(job, "b\n", 1, "rank0.log.1")
    write(job, "c\n", 1)
    write(job, "d\n", 2)
    write(job, "e\n", 10)
    write(job, "other\n", 2, "rank1.log")
    write(job, "runner\n", 2, "runner.log")
    whole = logs(api, job)
    assert (whole["text"], whole["size"], whole["ranks"]) == ("a\nb\nc\nd\ne\n", 10, [0, 1])
    assert logs(api, job, "?offset=3&limit=4")["text"] == "\nc\nd"
    assert logs(api, job, "?rank=1")["text"] == "other\n"
    assert logs(api, job, "?tail=2")["text"] == "d\ne\n"
    assert logs(api, job, "?offset=99")["text"] == ""


def test_reading_on_from_next_offset_gives_everything_once(api: Api, job: Job) -> None:
    text = "".join(f"Zeile {n} – äöü 🚂\n" for n in range(50))
    write(job, text[:700], 1)
    write(job, text[700:], 2)
    read, offset = "", 0
    while True:
        part = logs(api, job, f"?offset={offset}&limit=37")
        read, offset = read + part["text"], part["next_offset"]
        if offset >= part["size"]:
            break
    assert read == text


def test_bytes_that_are_no_text_are_replaced(api: Api, job: Job) -> None:
    write(job, b"\xff\x00ok\xc3")
    assert logs(api, job)["text"] == "\ufffd\x00ok\ufffd"


def test_a_character_written_in_two_parts_is_whole_where_it_is_followed(world: World, api: Api, job: Job) -> None:
    world.train(job)
    write(job, b"cut \xe2")
    first = logs(api, job)
    assert (first["text"], first["next_offset"], first["size"]) == ("cut ", 4, 4)
    write(job, "cut ✓ in two\n")
    assert logs(api, job, f"?offset={first['next_offset']}")["text"] == "✓ in two\n"
    write(job, b"cut \xe2")
    world.gone(job, "user_error", exit_code=1)
    assert logs(api, job, "?run=1")["text"] == "cut \ufffd", "no more of it will come"


def test_a_search_takes_spaces_and_tabs_as_they_are(api: Api, job: Job) -> None:
    write(job, "a\tb\n ab\nab\n")
    assert logs(api, job, "?search=a%09b")["text"] == "a\tb\n"
    assert logs(api, job, "?search=%20ab")["text"] == " ab\n"
    assert api.get(f"jobs/{job.number}/logs?search=a%0Ab").status == 400


def test_search_finds_lines_in_any_case(api: Api, job: Job) -> None:
    write(job, "".join(f"{'Loss' if n % 2 else 'step'} {n}\n" for n in range(10)))
    found = logs(api, job, "?search=loss&tail=2")
    assert found["text"] == "Loss 7\nLoss 9\n"
    assert logs(api, job, "?search=LOSS%203")["text"] == "Loss 3\n"
    paged, offset = "", 0
    while offset < found["size"]:
        part = logs(api, job, f"?search=loss&limit=14&offset={offset}")
        paged, offset = paged + part["text"], part["next_offset"]
    assert paged.count("Loss") == 5


def test_complete_says_that_nothing_more_will_come(world: World, api: Api, job: Job) -> None:
    write(job, "bye\n")
    assert logs(api, job)["complete"] is False
    cancel_job(user=world.user, job=job)
    assert logs(api, job)["complete"] is True
    assert logs(api, job, "?limit=1")["complete"] is False


def test_an_earlier_attempt_is_read_by_its_number(world: World, api: Api) -> None:
    world.train(job := world.submit(retry={"on": ["user_error"]}))
    write(job, "first\n")
    world.gone(job, "user_error", exit_code=1)
    job.refresh_from_db()
    write(job, "second\n")
    assert logs(api, job)["text"] == "second\n"
    assert logs(api, job, "?run=1")["text"] == "first\n"
    for unknown in ("9", "nonsense", "00000000-0000-0000-0000-000000000000"):
        assert api.get(f"jobs/{job.number}/logs?run={unknown}").status == 404


@pytest.mark.parametrize("query", ["rank=-1", "limit=0", "limit=99999999", "tail=0", "offset=-1", "rnak=1", "follow=2"])
def test_absurd_ranges_are_refused(api: Api, job: Job, query: str) -> None:
    assert api.get(f"jobs/{job.number}/logs?{query}").status == 400


def test_links_pipes_and_shared_files_are_not_read(api: Api, job: Job, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("do not tell")
    here = folder(job)
    (here / "rank0.log").symlink_to(secret)
    (here / "rank1.log").hardlink_to(secret)
    os.mkfifo(here / "rank2.log")
    (here / "rank3.log").mkdir()
    (here.parent.parent / "2").symlink_to(here.parent)
    assert logs(api, job)["ranks"] == []
    for rank in range(4):
        assert logs(api, job, f"?rank={rank}")["text"] == ""


def test_a_folder_that_is_a_link_is_not_entered(world: World, api: Api, job: Job) -> None:
    other = world.submit()
    write(other, "of another job\n")
    write(job, "")
    run = folder(job).parent.parent
    run.rename(run.with_name("elsewhere"))
    run.symlink_to(folder(other).parent.parent)
    assert logs(api, job)["text"] == ""


async def _stream(token: str, path: str, accept: str = "text/plain") -> tuple[Any, bytes]:
    headers = {"Authorization": f"Bearer {token}", "Accept": accept}
    response = await AsyncClient().get(f"/api/v1/{path}", headers=headers)
    return response, b"".join([part async for part in response.streaming_content])  # type: ignore[attr-defined]


@pytest.mark.django_db(transaction=True)
def test_no_more_files_are_opened_than_a_run_can_have_written(
    world: World, api: Api, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.train(job)
    workers = world.gpus(job)
    write(job, "mine\n")
    for number in range(3_000):
        write(job, "", name=f"rank{number + workers}.log")
        if number < 300:
            folder(job, 100_000 + number)
    opened, open_file = list[str](), files.open_file

    def noting(above: int | None, name: str) -> int | None:
        opened.append(name)
        return open_file(above, name)

    monkeypatch.setattr(files, "open_file", noting)
    found = logs(api, job)
    assert (found["ranks"], found["text"]) == ([0], "mine\n")
    assert len(opened) < 50
    assert logs(api, job, f"?rank={workers}")["text"] == ""


def test_only_the_newest_launches_are_looked_at(world: World, api: Api, job: Job) -> None:
    for epoch in (1, 2, 120):
        write(job, f"{epoch}\n", epoch)
    Run.objects.filter(job=job).update(epoch=120)
    assert logs(api, job)["text"] == "120\n"


def test_text_is_the_whole_log(world: World, job: Job) -> None:
    write(job, "x" * 600_000 + "\nend\n")
    _, token = create_token(user=world.user, name="t")
    response, text = async_to_sync(_stream)(token, f"jobs/{job.number}/logs")
    assert response["Content-Type"] == "text/plain; charset=utf-8"
    assert response["X-Content-Type-Options"] == "nosniff"
    assert len(text) == 600_005
    assert text.endswith(b"end\n")


@pytest.mark.django_db(transaction=True)
def test_following_ends_when_the_job_does(world: World, job: Job) -> None:
    write(job, "one\n")
    _, token = create_token(user=world.user, name="t")

    async def follow() -> bytes:
        reading = asyncio.create_task(_stream(token, f"jobs/{job.number}/logs?follow=1"))
        await asyncio.sleep(0.3)
        await asyncio.to_thread(write, job, "one\ntwo\n")
        await asyncio.sleep(0.8)
        assert not reading.done()
        await sync_to_async(cancel_job)(user=world.user, job=job)
        return (await asyncio.wait_for(reading, 20))[1]

    assert async_to_sync(follow)() == b"one\ntwo\n"


def _revoke(user: User, token: ApiToken) -> None:
    revoke_token(actor=user, token=token)


def _deactivate(user: User, token: ApiToken) -> None:
    User.objects.filter(pk=user.pk).update(is_active=False)


def _take_out(user: User, token: ApiToken) -> None:
    Membership.objects.filter(user=user).delete()


@pytest.mark.parametrize("end", [_revoke, _deactivate, _take_out])
@pytest.mark.django_db(transaction=True)
def test_following_ends_with_access(
    world: World, job: Job, monkeypatch: pytest.MonkeyPatch, end: Callable[[User, ApiToken], None]
) -> None:
    monkeypatch.setattr(standing, "ASK_AGAIN_S", 0.2)
    write(job, "one\n")
    row, token = create_token(user=world.user, name="t")

    async def follow() -> bytes:
        reading = asyncio.create_task(_stream(token, f"jobs/{job.number}/logs?follow=1"))
        await asyncio.sleep(1.5)
        assert not reading.done()
        await sync_to_async(end)(world.user, row)
        text = (await asyncio.wait_for(reading, 20))[1]
        await asyncio.to_thread(write, job, "one\ntwo\n")
        return text

    assert async_to_sync(follow)() == b"one\n"


@pytest.mark.django_db(transaction=True)
def test_following_ends_with_the_session(world: World, job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standing, "ASK_AGAIN_S", 0.2)
    write(job, "one\n")
    browser = AsyncClient()

    async def read() -> bytes:
        response = await browser.get(f"/api/v1/jobs/{job.number}/logs?follow=1", headers={"Accept": "text/plain"})
        return b"".join([part async for part in response.streaming_content])  # type: ignore[attr-defined]

    async def follow() -> bytes:
        await browser.aforce_login(world.user)
        reading = asyncio.create_task(read())
        await asyncio.sleep(1.5)
        assert not reading.done()
        await sync_to_async(end_sessions)(world.user)
        return await asyncio.wait_for(reading, 20)

    assert async_to_sync(follow)() == b"one\n"


def rotate(job: Job, text: str) -> None:
    """As the runner's log does it: the oldest of three parts goes, and a new one begins."""
    here = folder(job)
    for newer, older in (("rank0.log.1", "rank0.log.2"), ("rank0.log", "rank0.log.1")):
        if (here / newer).exists():
            (here / newer).replace(here / older)
    write(job, text)


def log_of(job: Job) -> RunLog:
    return RunLog(Path(settings.EVENKEEL_DATA), job.pk, job.run.pk, 0)  # type: ignore[union-attr]


def read_on(follower: Follower, job: Job, limit: int = 100) -> bytes:
    data = b""
    while piece := follower.read(log_of(job), limit):
        data += piece
    return data


def test_a_follower_misses_nothing_when_the_oldest_part_is_removed(job: Job) -> None:
    write(job, "first\n")
    for text in ("second\n", "third\n"):
        rotate(job, text)
    follower = Follower()
    assert job.run is not None
    log = log_of(job)
    follower.start(log, 0)
    assert follower.read(log, 3) == b"fir"
    rotate(job, "fourth\n")
    assert read_on(follower, job) == b"st\nsecond\nthird\nfourth\n"
    for number in range(5):
        rotate(job, f"round {number}\n")
        assert read_on(follower, job) == f"round {number}\n".encode()
    follower.close()


def test_a_follower_that_was_overtaken_goes_on_with_the_oldest_that_is_left(job: Job) -> None:
    write(job, "first\n")
    follower = Follower()
    assert job.run is not None
    follower.start(log_of(job), 6)
    for text in ("second\n", "third\n", "fourth\n", "fifth\n"):
        rotate(job, text)
    assert read_on(follower, job) == b"third\nfourth\nfifth\n"
    write(job, "sixth\n", 2)
    assert read_on(follower, job) == b"sixth\n"
    follower.close()
