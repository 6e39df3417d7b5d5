"""Wake-ups for Celery. Losing one costs seconds: a timer runs the same tasks anyway."""

from __future__ import annotations

import logging
import math
import time
from typing import ClassVar
from uuid import UUID

from django.core.cache import cache
from redis.exceptions import RedisError

from portal.core import task_queue

logger = logging.getLogger(__name__)

ROUND_KEY, LIVE_KEY, CALM_KEY = "wake:round", "wake:live", "wake:live:calm"
#: A flag that is never cleared (its message was lost) expires after this time.
_FLAG_TTL_S = 5
#: Rounds that are shorter need no rest; after a longer one the rest is three times as long, three seconds at most.
_SHORT_S, _REST_FACTOR, _LONGEST_REST_S = 0.1, 3.0, 3.0
_RESTS_UNTIL = "round:rests:{}"
#: A process that has just requested something and does so again waits for a moment, and then requests all at once.
_BURST_S = 0.2


class _Burst:
    """Of one process: a round moves hundreds of runs, and each would send messages."""

    _known: ClassVar[dict[str, _Burst]] = {}

    def __init__(self) -> None:
        self._asked_at = self._covered_until = -math.inf

    @classmethod
    def of(cls, key: str) -> _Burst:
        return cls._known.setdefault(key, cls())

    def delay_s(self) -> float | None:
        """Seconds until the request is sent; None: an earlier request covers this one."""
        now = time.monotonic()
        if now < self._covered_until:
            return None
        if now - self._asked_at >= _BURST_S:
            self._asked_at = now
            return 0.0
        self._asked_at = self._covered_until = now + _BURST_S
        return _BURST_S


def schedule_round(countdown_s: float = 0.0, cluster_id: int | None = None) -> None:
    """Run a round soon, of one cluster or of all. A burst of wake-ups makes one round."""
    if not countdown_s:
        if (later_s := _Burst.of(round_key(cluster_id)).delay_s()) is None:
            return
        countdown_s = later_s
    try:
        if _first(round_key(cluster_id), countdown_s):
            arguments = () if cluster_id is None else (cluster_id,)
            task_queue.send(task_queue.RUN_ROUND, *arguments, **_after(countdown_s))
    except task_queue.UNREACHABLE as error:
        logger.warning("no nudge for the scheduler (%s); its timer will run", error)


def publish(countdown_s: float = 0.0) -> None:
    """Publish changes to the live streams soon."""
    if not countdown_s:
        if (later_s := _Burst.of(LIVE_KEY).delay_s()) is None:
            return
        countdown_s = later_s
    try:
        if _first(LIVE_KEY, countdown_s):
            task_queue.send(task_queue.PUBLISH_LIVE, **_after(countdown_s))
    except task_queue.UNREACHABLE as error:
        logger.warning("live views are late (%s)", error)


def publish_steps(countdown_s: float = 0.0) -> None:
    """Publish new steps when there is time for it."""
    try:
        if cache.add(CALM_KEY, 1, int(countdown_s) + _FLAG_TTL_S):
            task_queue.send(task_queue.PUBLISH_LIVE, True, **_after(countdown_s))
    except task_queue.UNREACHABLE as error:
        logger.warning("live views are late (%s)", error)


def hand_over(job_id: UUID) -> None:
    """Hand over a moved job's files soon."""
    try:
        task_queue.send(task_queue.HAND_OVER, str(job_id))
    except task_queue.UNREACHABLE as error:
        logger.warning("the files of job %s follow it later (%s)", job_id, error, extra={"job_id": str(job_id)})


def _after(countdown_s: float) -> dict[str, float]:
    return {"countdown": countdown_s} if countdown_s else {}


def round_key(cluster_id: int | None) -> str:
    return ROUND_KEY if cluster_id is None else f"{ROUND_KEY}:{cluster_id}"


def _first(key: str, countdown_s: float) -> bool:
    """The first request of its kind: now, or later within the same fifth of a second."""
    if not countdown_s:
        return bool(cache.add(key, 1, _FLAG_TTL_S))
    slot = int((time.time() + countdown_s) * 5)
    return bool(cache.add(f"{key}:{slot}", 1, int(countdown_s) + 2))


def rest(took_s: float, cluster_id: int) -> None:
    """After a round that used this much processor time the cluster's next one waits: with thousands of jobs rounds
    would otherwise occupy a whole core as long as jobs arrive, and slow down the requests that submit them."""
    if took_s < _SHORT_S:
        return
    rest_s = min(_REST_FACTOR * took_s, _LONGEST_REST_S)
    try:
        cache.set(_RESTS_UNTIL.format(cluster_id), time.time() + rest_s, rest_s + 1)
    except RedisError as error:
        logger.warning("rounds do not rest (%s)", error)


def rest_left_s(cluster_id: int) -> float:
    """Seconds until a round of the cluster may run."""
    try:
        return max(0.0, float(cache.get(_RESTS_UNTIL.format(cluster_id), 0.0)) - time.time())
    except RedisError:
        return 0.0


def clear(key: str) -> None:
    """Later changes need another wake-up."""
    try:
        cache.delete(key)
    except RedisError as error:
        logger.warning("cannot clear %s: %s", key, error)
