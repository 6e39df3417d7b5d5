"""Two connections in a forced order: one has changed rows and not committed yet when the other comes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from django.db import connection, transaction

_PATIENCE_S = 20.0
_WAITING = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"


@dataclass(frozen=True, slots=True)
class Second:
    """What became of the one that came second."""

    waited: bool
    result: Any = None
    error: Exception | None = None


def overtaken(first: Callable[[], object], second: Callable[[], object]) -> Second:
    """`first` commits when `second` waits for it or is over."""
    done, go = threading.Event(), threading.Event()

    def ahead() -> None:
        with transaction.atomic():
            first()
            done.set()
            assert go.wait(_PATIENCE_S)

    with ThreadPoolExecutor(2) as pool:
        leader = pool.submit(alone, ahead)
        if not done.wait(_PATIENCE_S):
            leader.result()
        follower = pool.submit(alone, second)
        waited = _waits(follower)
        go.set()
        leader.result(_PATIENCE_S)
        error = follower.exception(_PATIENCE_S)
        if error is not None and not isinstance(error, Exception):
            raise error
        return Second(waited, None if error else follower.result(), error)


def alone(call: Callable[[], object]) -> object:
    """On a connection of its own."""
    try:
        return call()
    finally:
        connection.close()


def _waits(follower: Future[Any]) -> bool:
    end_at = time.monotonic() + _PATIENCE_S
    while not follower.done() and time.monotonic() < end_at:
        with connection.cursor() as cursor:
            cursor.execute(_WAITING)
            if cursor.fetchone()[0]:
                return True
        time.sleep(0.005)
    return False
