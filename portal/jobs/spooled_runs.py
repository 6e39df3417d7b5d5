"""Ended runs whose spooled reports a task is recording; the same task records their exit afterwards.

Kept in the cache for a while: if an entry is lost, the next round starts a task again.
"""

from __future__ import annotations

from uuid import UUID

from django.core.cache import cache

#: Tasks started before the reports of a run are given up: each of them ended without finishing.
MAX_BEGUN = 3
#: After this a task counts as lost, and another is sent.
PENDING_S = 60
#: Longer than a task takes.
TAKING_S = 120
_REMEMBERED_S = 86_400


def is_pending(run_id: UUID | str, epoch: int) -> bool:
    """All its processes are gone, and its exit is about to be recorded: no limit needs to end it any more."""
    return bool(cache.get(_key("pending", run_id, epoch)))


def claim_task(run_id: str, epoch: int) -> bool:
    """True if the caller must send a task; False while one is under way."""
    return bool(cache.add(_key("pending", run_id, epoch), True, PENDING_S))


def expect(run_id: str, epoch: int) -> None:
    """A task that has to wait comes again: no other must be sent."""
    cache.set(_key("pending", run_id, epoch), True, PENDING_S)


def is_given_up(run_id: str, epoch: int) -> bool:
    return int(cache.get(_key("begun", run_id, epoch)) or 0) >= MAX_BEGUN


def begin(run_id: str, epoch: int) -> None:
    """A task has started to record them."""
    begun = _key("begun", run_id, epoch)
    cache.add(begun, 0, _REMEMBERED_S)
    cache.incr(begun)
    cache.set(_key("pending", run_id, epoch), True, TAKING_S)


def end(run_id: str, epoch: int) -> None:
    cache.delete_many([_key(what, run_id, epoch) for what in ("pending", "begun")])


def _key(what: str, run_id: UUID | str, epoch: int) -> str:
    return f"spooled:{what}:{run_id}:{epoch}"
