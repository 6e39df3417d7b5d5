"""Django's Redis cache with one pool of connections for a process.

Django keeps a cache for each thread, and each ASGI request has a thread of its own: it would connect anew each time.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from django.core.cache.backends import redis
from django.utils.functional import cached_property
from redis import ConnectionPool, Redis


class RedisCache(redis.RedisCache):
    _servers: list[str]
    _options: dict[str, Any]

    @cached_property
    def _cache(self) -> _Client:
        return _client(tuple(self._servers), tuple(sorted(self._options.items())))

    def count(self, keys: Sequence[str], keep_s: int, by: Sequence[int]) -> list[int]:
        """Adds to each key and says how much it is now, in one exchange; a key lasts from its first count on."""
        pipeline = self._cache.get_client(write=True).pipeline()  # in one piece: none ends between its two commands
        for key, more in zip(map(self.make_and_validate_key, keys), by, strict=True):
            pipeline.set(key, 0, ex=keep_s, nx=True)
            pipeline.incrby(key, more)
        return [int(found) for found in pipeline.execute()[1::2]]


class _Client(redis.RedisCacheClient):
    def get_client(self, key: object = None, *, write: bool = False) -> Redis:
        """Threads may share it: its pool gives a connection to one of them at a time, and none outlives a fork."""
        return _over(self._get_connection_pool(write))  # type: ignore[attr-defined]  # the stubs leave it out


@cache
def _client(servers: tuple[str, ...], options: tuple[tuple[str, Any], ...]) -> _Client:
    return _Client(list(servers), **dict(options))


@cache
def _over(pool: ConnectionPool) -> Redis:
    return Redis(connection_pool=pool)
