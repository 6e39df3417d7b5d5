"""Live streams: each stream's state is one JSON object, its events are JSON merge patches (RFC 7386).

The last published state of every stream is in Redis with its number, so a diff is always relative to what clients have.
If Redis is lost, numbering starts anew under another generation and clients fetch again. Without viewers nothing is
computed; the first viewer gets the last state, and then all changes at once.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Collection
from dataclasses import asdict, dataclass
from datetime import datetime
from functools import cache
from typing import Any
from uuid import uuid4

from asgiref.sync import async_to_sync
from channels.layers import get_channel_layer
from django.conf import settings
from redis import Redis
from redis.exceptions import RedisError

from accounts.models import Project, User
from accounts.selectors import visible_projects
from portal.core import wake
from portal.core.locks import live_lock
from portal.core.times import iso
from portal.jobs.clusters import active_clusters
from portal.jobs.loops import Item, Loop, LoopName
from portal.live import streams

logger = logging.getLogger(__name__)
#: At most two diffs in this time. An event is published at once if that allows it; steps wait until nothing was
#: published for twice as long, so that the next event is not delayed.
WINDOW_S, CALM_S = 1.0, 2.0
#: With many jobs a diff takes long to compute: the publisher then pauses for this multiple after an event, and twice
#: that after steps. So it uses at most a third of a core that requests also need.
_REST_FACTOR, _LONGEST_REST_S = 4.0, 10.0
#: Delay if another process publishes, which may have read the state before this change.
_LOCKED_S = 0.1
#: When the last two publications ended, when the last one of an event did, and how long the last one took.
_PUBLISHED = "live:published"
#: How often all sockets are sent the newest numbers: a client that missed a diff while Redis was unreachable, and after
#: which nothing else changed, would not notice otherwise.
NUMBERS_EVERY_S = 4.0
_NUMBERS_SENT_AT = "live:numbers"
EVERYBODY = "live-numbers"
#: How often a reader waits for the present publisher, before it computes the state itself.
_PATIENCE = 5
#: Set while there are viewers: sockets renew it at every ping, and readers when they read. It has a new value for each
#: new first viewer; a state that was published under another value may be arbitrarily old.
_WATCHED, WATCH_S = "live:watched", 30


def _redis() -> Redis:
    return _client(settings.REDIS_URL)


@cache
def _client(url: str) -> Redis:
    """Its connections outlive a request and a task; they are checked at every use."""
    return Redis.from_url(url, socket_connect_timeout=2, socket_timeout=5)


def _key(stream: str) -> str:
    return f"live:streams:{stream}"


def group_name(stream: str) -> str:
    """Names of channel layer groups allow few characters."""
    return "live." + stream.replace(":", ".")


def allowed_streams(user: User) -> set[str]:
    """The streams that a signed-in user may see."""
    keys = visible_projects(user).values_list("key", flat=True)
    clusters = (streams.stream_of(cluster, place) for place, cluster in enumerate(active_clusters()))
    return {"cluster", *clusters, *(f"project:{key}" for key in keys)}


def existing_streams(names: Collection[str], most: int = 20) -> list[str]:
    """The projects' streams, visible or not."""
    keys = [key for kind, _, key in (name.partition(":") for name in names) if kind == "project" and "\0" not in key]
    found = Project.objects.filter(key__in=keys).values_list("key", flat=True)[:most] if keys else []
    return [f"project:{key}" for key in found]


def watch() -> None:
    """Register a viewer; for the first one the streams are updated."""
    redis = _redis()
    try:
        if redis.set(_WATCHED, uuid4().hex, ex=WATCH_S, nx=True):
            wake.publish()
        else:
            redis.expire(_WATCHED, WATCH_S)
    except RedisError as error:
        logger.warning("nobody knows that somebody looks: %s", error)


def is_watched() -> bool:
    return bool(_redis().exists(_WATCHED))


def merge_patch(before: Any, after: Any) -> Any:
    """The merge patch that turns one JSON object into the other; both must be free of nulls inside lists only.

    A null in `after` for a key that `before` lacks, or has another value for, is sent as null: the receiver then drops
    the key, and reads a missing key as null. `normalise` therefore removes nulls from states.
    """
    patch: dict[str, Any] = {key: None for key in before if key not in after}
    for key, value in after.items():
        old = before.get(key)
        if key in before and old == value:
            continue
        both = isinstance(old, dict) and isinstance(value, dict)
        patch[key] = merge_patch(old, value) if both else value
    return patch


def normalise(value: Any) -> Any:
    """Without null members: in a merge patch null means removal, and readers treat a missing key as null."""
    if isinstance(value, dict):
        return {key: normalise(item) for key, item in value.items() if item is not None}
    return [normalise(item) for item in value] if isinstance(value, list) else value


@dataclass(frozen=True)
class Published:
    """The last publications: POSIX seconds, and seconds of processor time."""

    last_at: float = 0.0
    before_last_at: float = 0.0
    event_at: float = 0.0
    took_s: float = 0.0

    def rest_left_s(self, now_s: float, *, calm: bool) -> float:
        """Seconds until the next one is allowed."""
        rest_s = min(_REST_FACTOR * self.took_s, _LONGEST_REST_S)
        if calm:
            due_at, longest_s = self.last_at + max(2 * rest_s, CALM_S), 2 * _LONGEST_REST_S
        else:
            due_at, longest_s = max(self.event_at + rest_s, self.before_last_at + WINDOW_S), _LONGEST_REST_S
        return min(max(0.0, due_at - now_s), longest_s)  # a clock that was set back must not delay it

    def followed_by(self, now_s: float, took_s: float, *, calm: bool) -> Published:
        return Published(now_s, self.last_at, self.event_at if calm else now_s, took_s)


@dataclass(frozen=True)
class Kept:
    """The last published state of a stream."""

    seq: int
    state: bytes | str  # JSON
    watched: bytes | str | None  # the viewers' value at that time, from `watch`


def _load(redis: Redis, stream: str) -> Kept | None:
    seq, state, watched = redis.hmget(_key(stream), "seq", "state", "watched")
    return None if seq is None or state is None else Kept(int(seq), state, watched)


def snapshot(stream: str, now: datetime) -> tuple[int, dict[str, Any]]:
    """The stream's number and state as last published; published first if it never was, or only before there were
    viewers."""
    redis = _redis()
    watch()
    for _ in range(_PATIENCE):
        kept = _load(redis, stream)
        if kept is not None and kept.watched == redis.get(_WATCHED):
            return kept.seq, json.loads(kept.state)
        publish_changes(now, only=stream, wait=True)
    return 0, normalise(streams.build(now, only=stream).get(stream, {}))


def publish_changes(now: datetime, only: str | None = None, wait: bool = False, calm: bool = False) -> float | None:
    """Publish one diff per stream that changed; returns the seconds to wait if it is too soon, else None.

    `calm`: only steps changed.
    """
    redis = _redis()
    watched = redis.get(_WATCHED) or b""  # before the state is read
    with live_lock() as mine:
        if not mine:
            if not wait:
                return _LOCKED_S
            time.sleep(0.3)
            return None
        before = Published(**json.loads(redis.get(_PUBLISHED) or "{}"))
        left_s = before.rest_left_s(time.time(), calm=calm)
        if only is None and left_s > 0:
            return left_s
        began_s = time.thread_time()
        numbers, loop = {}, Loop(LoopName.LIVE, postpones=False)
        for stream, state in streams.build(now, only=only).items():
            item = Item(f"publish:{stream}", f"stream {stream}")
            if (number := loop.run(item, _publish, redis, stream, state, now, watched)) is not None:
                numbers[stream] = number
        if only is None and redis.set(_NUMBERS_SENT_AT, 1, px=int(NUMBERS_EVERY_S * 1000), nx=True):
            _send(EVERYBODY, {"type": "live.numbers", "numbers": numbers})
        this = before.followed_by(time.time(), time.thread_time() - began_s, calm=calm)
        redis.set(_PUBLISHED, json.dumps(asdict(this)), ex=int(2 * _LONGEST_REST_S) + 1)
    return None


def _publish(redis: Redis, stream: str, built: dict[str, Any], now: datetime, watched: bytes | str) -> int | None:
    """The stream's present number; None if Redis is unreachable."""
    try:
        return _store_and_send(redis, stream, normalise(built), now, watched)
    except RedisError as error:
        logger.warning("stream %s not published: %s", stream, error)
        return None


def _store_and_send(redis: Redis, stream: str, state: dict[str, Any], now: datetime, watched: bytes | str) -> int:
    kept, text = _load(redis, stream), json.dumps(state, sort_keys=True).encode()
    if kept and text == kept.state:
        if kept.watched != watched:
            redis.hset(_key(stream), "watched", watched)
        return kept.seq
    # new numbering starts at a time-based number, beyond any that a client may still have
    seq = (kept.seq if kept else int(now.timestamp() * 10)) + 1
    patch = merge_patch(json.loads(kept.state) if kept else {}, state)
    redis.hset(_key(stream), mapping={"seq": seq, "state": text, "watched": watched})
    message = {"type": "diff", "stream": stream, "seq": seq, "at": iso(now), "patch": patch}
    _send(group_name(stream), {"type": "live.message", "text": json.dumps(message)})
    return seq


def _send(group: str, message: dict[str, Any]) -> None:
    layer = get_channel_layer()
    if layer is not None:
        async_to_sync(layer.group_send)(group, message)
