"""How often somebody may guess a password: per minute, from one address at one account."""

from __future__ import annotations

import hashlib
import logging

from django.core.cache import cache
from redis.exceptions import RedisError

logger = logging.getLogger(__name__)
LIMIT = 10
WINDOW_S = 60


def _key(address: str, email: str) -> str:
    who = f"{address} {email.strip().lower()[:254]}"
    return "signin:" + hashlib.sha256(who.encode(errors="replace")).hexdigest()


def may_try(address: str, email: str) -> bool:
    """Counts this attempt. Without Redis nobody is kept out."""
    key = _key(address, email)
    try:
        return cache.add(key, 1, WINDOW_S) or cache.incr(key) <= LIMIT
    except ValueError:  # it ended between the two
        return True
    except RedisError as error:
        logger.warning("sign-in is not slowed down: %s", error)
        return True


def forget(address: str, email: str) -> None:
    """A right password clears the count."""
    try:
        cache.delete(_key(address, email))
    except RedisError as error:
        logger.warning("attempts not forgotten: %s", error)
