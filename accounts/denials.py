"""Denied accesses in the audit log, bounded so that it cannot be flooded.

Per minute at most LIMIT entries of one person (or token, or address) and TOTAL of all are written; one more entry then
says that further ones were dropped.
"""

from __future__ import annotations

import logging
from time import time
from typing import Any

from redis.exceptions import RedisError

from accounts.audit import record_audit
from accounts.counting import count
from accounts.models import User

logger = logging.getLogger(__name__)
ACTION = "access.denied"
LIMIT = 20
TOTAL = 300
WINDOW_S = 60


def record_denial(*, actor: User | None, target: str, detail: dict[str, Any], who: str, action: str = ACTION) -> None:
    """Counted for `who`; without Redis the denial is only logged."""
    window = int(time()) // WINDOW_S
    try:
        own, all_together = (count(key, 2 * WINDOW_S) for key in (f"denied:{who}:{window}", f"denied:{window}"))
    except RedisError as error:
        logger.warning("denied and not audited: %s %s (%s)", target, detail, error)
        return
    if own > LIMIT + 1 or all_together > TOTAL + 1:
        return
    if own == LIMIT + 1 or all_together == TOTAL + 1:
        detail = {"left_out": f"more of these until {(window + 1) * WINDOW_S}", "limit": LIMIT, "total": TOTAL}
    record_audit(actor=actor, action=action, target=target, detail=detail)
