"""How many notices a run may send: each is an event that people see and that is stored."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from uuid import UUID

from redis.exceptions import RedisError

from accounts.counting import count

logger = logging.getLogger(__name__)

MAX_PER_HOUR = 100
_HOUR_S = 3_600


def within_limit(run_id: UUID, notices: Sequence[str]) -> list[str]:
    """The notices of one report within the hour's limit; in place of the others one notice that more were dropped."""
    if not notices:
        return []
    try:
        used = count(f"notices:{run_id}:{int(time.time() // _HOUR_S)}", 2 * _HOUR_S, by=len(notices))
    except RedisError as error:
        logger.warning("notices are not counted: %s", error)
        return list(notices)
    if used <= MAX_PER_HOUR:
        return list(notices)
    room = MAX_PER_HOUR - (used - len(notices))
    last = f"more than {MAX_PER_HOUR} notices in an hour: the rest of them is left out"
    return [*notices[:room], last] if room >= 0 else []
