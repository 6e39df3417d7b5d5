"""Use of nodes by the engine's other jobs, for people: counts and times, without their owners."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from portal.core.times import iso
from portal.jobs.models import Node
from portal.snapshot.engine_jobs import taken_of


def describe_taken(node: Node) -> list[dict[str, Any]]:
    return [
        {"gpus": one.gpus, "cpus": one.cpus, "memory_mib": one.memory_mib, "until_at": _at(one.until)}
        for one in taken_of(node)
    ]


def _at(until: float | None) -> str | None:
    return iso(None if until is None else datetime.fromtimestamp(until, UTC))


def first_end(ends: Iterable[float | None]) -> str | None:
    return _at(min((end for end in ends if end is not None), default=None))
