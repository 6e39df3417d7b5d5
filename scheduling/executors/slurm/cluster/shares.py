"""The site's own fair share: `sshare` for users in accounts."""

from __future__ import annotations

import math
from itertools import islice

COMMAND = ("sshare", "--all", "--noheader", "--parsable2", "--format=Account,User,FairShare")
MOST_LINES = 100_000


def read_shares(text: str) -> dict[tuple[str, str], float]:
    """By account and user, from 0 to 1. Accounts have lines without a user; an unreadable line is skipped."""
    found = {}
    for line in islice(text.splitlines(), MOST_LINES):
        account, _, rest = line.strip().partition("|")
        user, _, factor = rest.partition("|")
        value = _factor(factor)
        if account and user and value is not None:
            found[account.strip(), user.strip()] = value
    return found


def _factor(word: str) -> float | None:
    try:
        value = float(word)
    except ValueError:
        return None
    return value if math.isfinite(value) and 0 <= value <= 1 else None
