"""The months of the event table. Events outside of them are in the default partition until their month is created."""

from __future__ import annotations

from datetime import UTC, datetime

from django.db import connection, transaction

from portal.jobs.loops import Item, Loop, LoopName

TABLE = "jobs_jobevent"
_LOCK_TIMEOUT = "2s"  # attaching and dropping wait for readers; the next pruning retries


def _name(year: int, month: int) -> str:
    return f"{TABLE}_y{year:04}m{month:02}"


def _next(year: int, month: int) -> tuple[int, int]:
    return (year + 1, 1) if month == 12 else (year, month + 1)


def existing() -> set[str]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = %s::regclass", [TABLE])
        return {name for (name,) in cursor.fetchall()}


def ensure(now: datetime) -> None:
    """Create the partitions of this month and the next; their events move over from the default one."""
    known = existing()
    at = now.astimezone(UTC)
    this = (at.year, at.month)
    for year, month in (this, _next(*this)):
        if _name(year, month) not in known:
            _make(year, month)


def _make(year: int, month: int) -> None:
    name, bounds = (
        _name(year, month),
        [datetime(*first, 1, tzinfo=UTC) for first in ((year, month), _next(year, month))],
    )
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(f"SET LOCAL lock_timeout = '{_LOCK_TIMEOUT}'")
        cursor.execute(f"LOCK TABLE {TABLE}_default IN ACCESS EXCLUSIVE MODE")
        cursor.execute(f"CREATE TABLE {name} (LIKE {TABLE} INCLUDING DEFAULTS INCLUDING CONSTRAINTS)")
        cursor.execute(
            f"WITH moved AS (DELETE FROM {TABLE}_default WHERE at >= %s AND at < %s RETURNING *) "  # noqa: S608
            f"INSERT INTO {name} SELECT * FROM moved",
            bounds,
        )
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        cursor.execute(f"ALTER TABLE {TABLE} ATTACH PARTITION {name} FOR VALUES FROM (%s) TO (%s)", bounds)


def drop_before(limit: datetime) -> None:
    """Drop the months that ended before `limit`, and older events from the default partition."""
    at = limit.astimezone(UTC)
    oldest_kept, loop = _name(at.year, at.month), Loop(LoopName.PRUNING)
    for name in sorted(existing() - {f"{TABLE}_default"}):
        if name < oldest_kept:
            loop.run(Item(f"table:{name}", f"table {name}"), _drop, name)
    with connection.cursor() as cursor:
        cursor.execute(f"DELETE FROM {TABLE}_default WHERE at < %s", [limit])  # noqa: S608 - a constant


def _drop(name: str) -> None:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(f"SET LOCAL lock_timeout = '{_LOCK_TIMEOUT}'")
        cursor.execute(f"DROP TABLE {name}")
