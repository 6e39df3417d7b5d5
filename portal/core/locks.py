"""PostgreSQL advisory locks: gone with the connection that holds them, so a killed worker leaves none behind."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from uuid import UUID

from django.db import connection

_ROUND, _LIVE, _BUNDLE, _FORECAST, _PREVIEW = 7_201, 7_202, 7_203, 7_204, 7_205
_NOTICES, _SHADOW, _GUARD = 7_206, 7_207, 7_208
_REPLAY = 7_211
_PLANNING, _ENGINE = 7_212, 7_213
_COMMANDS, _KILLS, _SPOOL = 7_214, 7_215, 7_216
#: Workers that one project's processes may occupy with commands, and as many again with kills.
PROJECT_SLOTS = 2
#: Processes that one cluster's engine may occupy with commands, if there are other clusters.
ENGINE_SLOTS = 2


@contextmanager
def _advisory(space: int, key: int) -> Iterator[bool]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_lock(%s, %s)", [space, key])
        mine = bool(cursor.fetchone()[0])
    try:
        yield mine
    finally:
        if mine:
            with connection.cursor() as cursor:
                cursor.execute("SELECT pg_advisory_unlock(%s, %s)", [space, key])


def cluster_lock(cluster_id: int) -> AbstractContextManager[bool]:
    """True if no other round of this cluster is in progress."""
    return _advisory(_ROUND, cluster_id)


def live_lock() -> AbstractContextManager[bool]:
    """True for the only publisher of live streams."""
    return _advisory(_LIVE, 0)


def forecast_lock() -> AbstractContextManager[bool]:
    """True for the only process that computes expected starts."""
    return _advisory(_FORECAST, 0)


def preview_lock() -> AbstractContextManager[bool]:
    """True for the only process that computes the forecast of a preview: the others are left for rounds."""
    return _advisory(_PREVIEW, 0)


def replay_lock() -> AbstractContextManager[bool]:
    """True for the only process that replays a stored round."""
    return _advisory(_REPLAY, 0)


def notice_lock() -> AbstractContextManager[bool]:
    """True for the only process that delivers notices: slow receivers occupy one process at most."""
    return _advisory(_NOTICES, 0)


def shadow_lock(cluster_id: int) -> AbstractContextManager[bool]:
    """True for the only process that runs a cluster's shadow evaluations."""
    return _advisory(_SHADOW, cluster_id)


def guard_lock() -> AbstractContextManager[bool]:
    """True for the only process that checks promoted policies against their bounds."""
    return _advisory(_GUARD, 0)


def engine_slot(cluster_id: int) -> AbstractContextManager[bool]:
    """True for the few processes that may wait for the cluster's engine: a dead one does not delay commands of
    others."""
    return _slot(_ENGINE, cluster_id, ENGINE_SLOTS)


def project_slot(project_id: int, *, kill: bool = False) -> AbstractContextManager[bool]:
    """True for the few processes that may wait for processes of the project: stopped ones do not delay commands of
    others. Kills have separate slots, so that none waits for a launch that hangs."""
    return _slot(_KILLS if kill else _COMMANDS, project_id, PROJECT_SLOTS)


def spool_lock(run_id: str) -> AbstractContextManager[bool]:
    """True for the only process that records what a run left behind, however long it takes. Two runs rarely have the
    same key, which only costs one of them some time."""
    return _advisory(_SPOOL, int(UUID(run_id).hex[:8], 16) - 2**31)


@contextmanager
def _slot(space: int, key: int, slots: int) -> Iterator[bool]:
    with ExitStack() as stack:
        yield any(stack.enter_context(_advisory(space, slots * key + number)) for number in range(slots))


@contextmanager
def _waiting(space: int, key: int) -> Iterator[None]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_lock(%s, %s)", [space, key])
    try:
        yield
    finally:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_unlock(%s, %s)", [space, key])


def planning_lock() -> AbstractContextManager[None]:
    """While held, no other cluster is planned: limits count use on all of them. No engine is called meanwhile."""
    return _waiting(_PLANNING, 0)


def bundle_lock(sha256: str) -> AbstractContextManager[None]:
    """While held, no other process stores or removes a file of this content; waits for the lock."""
    return _waiting(_BUNDLE, int(sha256[:8], 16) - 2**31)
