"""Counts per window, in the cache."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from django.core.cache import caches

from accounts.cache import RedisCache


def count(key: str, keep_s: int, by: int = 1) -> int:
    """Adds `by` and returns the new value. RedisError if counting is impossible."""
    return count_many([key], keep_s, [by])[0]


def count_many(keys: Sequence[str], keep_s: int, by: Sequence[int]) -> list[int]:
    """Each by its own number, in one round trip."""
    return cast("RedisCache", caches["default"]).count(keys, keep_s, by)
