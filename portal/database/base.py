"""Connections to PostgreSQL that stay open from one request or task to the next.

Each ASGI request has a thread of its own, so Django's persistent connections (CONN_MAX_AGE), which belong to threads,
are useless here; opening one takes a third of the time of a submission. This backend keeps them on a stack of the
process.
"""

from __future__ import annotations

import os
import time
from collections import deque
from contextlib import suppress
from threading import Lock
from weakref import WeakKeyDictionary

import psycopg2
from django.conf import settings
from django.db.backends.postgresql import base
from psycopg2.extensions import TRANSACTION_STATUS_IDLE
from psycopg2.extensions import connection as Connection

#: Older ones are closed, so that the state of their server processes does not grow without limit.
LONGEST_S = 600.0
_changing = Lock()
_idle: deque[Connection] = deque()
#: When each was opened, and its parameters: another role, host or database needs another connection.
_opened: WeakKeyDictionary[Connection, tuple[float, dict[str, object]]] = WeakKeyDictionary()


class DatabaseWrapper(base.DatabaseWrapper):
    def get_new_connection(self, conn_params: dict[str, object]) -> Connection:
        while _idle:
            try:
                kept = _idle.pop()
            except IndexError:  # another thread was faster
                break
            if _opened[kept][1] == conn_params and not _is_old(kept) and _answers(kept):
                return kept
            kept.close()
        fresh: Connection = super().get_new_connection(conn_params)
        _opened[fresh] = (time.monotonic(), dict(conn_params))
        return fresh

    def _close(self) -> None:
        if self.connection is None or self.in_atomic_block or not _keeps(self.connection):
            super()._close()  # type: ignore[misc]  # the stubs leave it out


def close_idle() -> None:
    """Closes all idle connections."""
    with suppress(IndexError):
        while True:
            _idle.pop().close()


# two processes must not share a connection
os.register_at_fork(before=close_idle)


def _keeps(connection: Connection) -> bool:
    """Keep the connection for the next request, unless there are enough."""
    if not settings.EVENKEEL_DB_POOL or connection not in _opened:
        return False
    try:
        if connection.info.transaction_status != TRANSACTION_STATUS_IDLE:
            connection.rollback()
        connection.autocommit = True
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_unlock_all()")
    except psycopg2.Error:
        return False
    with _changing:
        if len(_idle) >= settings.EVENKEEL_DB_POOL:
            return False
        _idle.append(connection)
        with suppress(IndexError):  # another thread takes from the other end
            while _is_old(_idle[0]):
                _idle.popleft().close()
    return True


def _is_old(connection: Connection) -> bool:
    return time.monotonic() - _opened[connection][0] > LONGEST_S


def _answers(connection: Connection) -> bool:
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    except psycopg2.Error:
        return False
    return True
