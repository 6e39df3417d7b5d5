"""Which ended runs left reports that a task is taking in; their exit is recorded after that, by the same task.

Kept in the cache for a while: should it be lost, the next round hands them out again.
"""

from __future__ import annotations

from uuid import UUID

from django.core.cache import cache

#: Tasks that begin before the reports of a run are given up: each of them ended without doing its work.
MAX_BEGUN = 3
#: After this a task counts as lost, and another is sent.
PENDING_S = 60
#: Longer than a task takes.
TAKING_S = 120
_REMEMBERED_S = 86_400


def is_pending(run_id: UUID | str, epoch: int) -> bool:
    """All its processes are gone, and how it ended is about to be recorded: no limit need end it any more."""
    return bool(cache.get(_key("pending", run_id, epoch)))


def hand_out(run_id: str, epoch: int) -> bool:
    """True where the caller shall send a task; False while another is on its way."""
    return bool(cache.add(_key("pending", run_id, epoch), True, PENDING_S))


def expect(run_id: str, epoch: int) -> None:
    """A task that has to wait comes again: no other need be sent."""
    cache.set(_key("pending", run_id, epoch), True, PENDING_S)


def is_given_up(run_id: str, epoch: int) -> bool:
    return int(cache.get(_key("begun", run_id, epoch)) or 0) >= MAX_BEGUN


def begin(run_id: str, epoch: int) -> None:
    """A task has begun to take them in."""
    begun = _key("begun", run_id, epoch)
    cache.add(begun, 0, _REMEMBERED_S)
    cache.incr(begun)
    cache.set(_key("pending", run_id, epoch), True, TAKING_S)


def end(run_id: str, epoch: int) -> None:
    cache.delete_many([_key(what, run_id, epoch) for what in ("pending", "begun")])


def _key(what: str, run_id: UUID | str, epoch: int) -> str:
    return f"spooled:{what}:{run_id}:{epoch}"
