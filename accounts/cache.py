"""Django's Redis cache with one pool of connections for a process.

Django keeps a cache for each thread, and each ASGI request has a separate thread: it would connect anew each time.
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
        """Increments each key and returns its new value, in one round trip; a key expires counted from its first
        increment."""
        pipeline = self._cache.get_client(write=True).pipeline()  # atomic: no key is left between its two commands
        for key, more in zip(map(self.make_and_validate_key, keys), by, strict=True):
            pipeline.set(key, 0, ex=keep_s, nx=True)
            pipeline.incrby(key, more)
        return [int(found) for found in pipeline.execute()[1::2]]


class _Client(redis.RedisCacheClient):
    def get_client(self, key: object = None, *, write: bool = False) -> Redis:
        """Threads may share it: its pool lends each connection to one thread at a time, and no connection survives a
        fork."""
        return _over(self._get_connection_pool(write))  # type: ignore[attr-defined]  # the stubs leave it out


@cache
def _client(servers: tuple[str, ...], options: tuple[tuple[str, Any], ...]) -> _Client:
    return _Client(list(servers), **dict(options))


@cache
def _over(pool: ConnectionPool) -> Redis:
    return Redis(connection_pool=pool)
