"""Connections that a process keeps between requests: handed on clean, and only while they answer."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import pytest
from django.db import connection, transaction

from portal.database import base

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def two_are_kept(settings: Any) -> Iterator[None]:
    server_process()  # the test's own connection, which no thread gets
    settings.EVENKEEL_DB_POOL = 2
    yield
    base.close_idle()
    assert not base._idle


def server_process() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        return int(cursor.fetchone()[0])


def as_a_request() -> int:
    """In a thread of its own, as each ASGI request is."""

    def request() -> int:
        try:
            return server_process()
        finally:
            connection.close()

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(request).result()


def test_the_next_request_has_the_same_connection() -> None:
    assert as_a_request() == as_a_request()


def side_by_side(requests: int) -> None:
    together = Barrier(requests)

    def hold(_: int) -> None:
        server_process()
        together.wait(30)
        connection.close()

    with ThreadPoolExecutor(requests) as threads:
        list(threads.map(hold, range(requests)))


def test_only_so_many_are_kept() -> None:
    side_by_side(4)
    assert len(base._idle) == 2


def test_one_that_the_server_ended_is_not_handed_on() -> None:
    first = as_a_request()
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(%s, 5000)", [first])
    assert as_a_request() != first


def test_one_that_is_old_is_not_handed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    first = as_a_request()
    monkeypatch.setattr(base, "LONGEST_S", -1.0)
    assert as_a_request() != first


def test_one_that_was_opened_otherwise_is_not_handed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    first = as_a_request()
    monkeypatch.setitem(connection.settings_dict, "OPTIONS", {"application_name": "another"})
    assert as_a_request() != first


def test_an_old_one_is_closed_wherever_it_lies() -> None:
    side_by_side(2)
    bottom = base._idle[0]
    opened, how = base._opened[bottom]
    base._opened[bottom] = (opened - base.LONGEST_S - 1, how)
    as_a_request()
    assert bottom.closed
    assert len(base._idle) == 1


def test_what_was_left_open_is_rolled_back() -> None:
    def leave() -> None:
        connection.set_autocommit(False)
        with connection.cursor() as cursor:
            cursor.execute("CREATE TABLE left_open (id int)")
        connection.close()

    with ThreadPoolExecutor(1) as thread:
        thread.submit(leave).result()
    assert len(base._idle) == 1
    as_a_request()
    with connection.cursor() as cursor:
        cursor.execute("SELECT to_regclass('left_open')")
        assert cursor.fetchone()[0] is None


def test_within_a_transaction_nothing_is_put_away() -> None:
    def close_within() -> None:
        with transaction.atomic():
            server_process()
            connection.close()
            assert not base._idle
        connection.close()

    with ThreadPoolExecutor(1) as thread:
        thread.submit(close_within).result()


def test_locks_end_with_the_request_that_took_them() -> None:
    def lock() -> None:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_lock(7, 7)")
        connection.close()

    with ThreadPoolExecutor(1) as thread:
        thread.submit(lock).result()
    assert len(base._idle) == 1
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_lock(7, 7)")
        assert cursor.fetchone() == (True,)
        cursor.execute("SELECT pg_advisory_unlock(7, 7)")


def test_a_process_that_forks_keeps_none() -> None:
    as_a_request()
    assert base._idle
    child = os.fork()
    if not child:
        os._exit(len(base._idle))
    assert os.waitpid(child, 0)[1] == 0
    assert not base._idle
