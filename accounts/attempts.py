"""Limits on password attempts: from one address at one account, at one account, from one address.

The limit per account is high, so that locking a person out takes a sustained effort, while guessing from many addresses
gains nothing.
"""

from __future__ import annotations

import hashlib
import logging
from dataclasses import dataclass

from django.core.cache import cache
from redis.exceptions import RedisError

from accounts.counting import count
from accounts.mail_address import normalized

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Limit:
    name: str
    attempts: int
    window_s: int


BOTH = Limit("both", 10, 60)
ACCOUNT = Limit("account", 60, 900)
ADDRESS = Limit("address", 100, 300)


def _keys(address: str, email: str) -> dict[Limit, str]:
    account = normalized(email.strip())[:254]
    return {BOTH: _key(BOTH, f"{address} {account}"), ACCOUNT: _key(ACCOUNT, account), ADDRESS: _key(ADDRESS, address)}


def _key(limit: Limit, who: str) -> str:
    return f"signin:{limit.name}:" + hashlib.sha256(who.encode(errors="replace")).hexdigest()


def wait_s(address: str, email: str) -> int:
    """Counts this attempt; 0: allowed, else the seconds to wait. Without Redis every attempt is allowed."""
    try:
        waits = [limit.window_s for limit, key in _keys(address, email).items() if _over(limit, key)]
    except RedisError as error:
        logger.warning("sign-in is not slowed down: %s", error)
        return 0
    return max(waits, default=0)


def invitation_wait_s(address: str) -> int:
    """The same for opening invitations: by address alone, since their secrets cannot be guessed one by one."""
    try:
        return ADDRESS.window_s if _over(ADDRESS, f"invitation:{_key(ADDRESS, address)}") else 0
    except RedisError as error:
        logger.warning("invitations are not slowed down: %s", error)
        return 0


def _over(limit: Limit, key: str) -> bool:
    return count(key, limit.window_s) > limit.attempts


def forget(address: str, email: str) -> None:
    """A correct password clears the count of its account; of the address only this attempt is subtracted."""
    keys = _keys(address, email)
    try:
        cache.delete_many([keys[BOTH], keys[ACCOUNT]])
        cache.decr(keys[ADDRESS])
    except ValueError:
        return
    except RedisError as error:
        logger.warning("attempts not forgotten: %s", error)
