"""Counts per window, in the cache."""

from __future__ import annotations

from django.core.cache import cache


def count(key: str, keep_s: int, by: int = 1) -> int:
    """Adds `by` and says how much it is now. RedisError where nothing can be counted."""
    if cache.add(key, by, keep_s):
        return by
    try:
        return int(cache.incr(key, by))
    except ValueError:  # it ended between the two: as good as the first
        return by
