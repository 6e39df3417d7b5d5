"""Celery tasks that are sent by name, from modules below the task's own.

A test compares each name with Celery's registry.
"""

from __future__ import annotations

import logging
from typing import Any

from celery import current_app
from django.core.cache import cache
from kombu.exceptions import OperationalError
from redis.exceptions import RedisError

logger = logging.getLogger(__name__)

FORESEE_PREVIEW = "evenkeel.foresee_preview"
FORESEE_WHAT_IF = "evenkeel.foresee_what_if"
HAND_OVER = "evenkeel.hand_over"
PUBLISH_LIVE = "evenkeel.publish_live"
RENEW_BASIS = "evenkeel.renew_basis"
RUN_ROUND = "evenkeel.run_round"
RUN_SIMULATIONS = "evenkeel.run_simulations"
SHADOW_ROUND = "evenkeel.shadow_round"

#: Errors of sending if the broker or the cache is unreachable.
UNREACHABLE = (RedisError, OperationalError, OSError)
#: Connections to an unreachable broker fail at once instead of blocking a request.
_SEND: dict[str, Any] = {"retry": False, "ignore_result": True}


def send(name: str, *arguments: Any, **options: Any) -> None:
    """Send a task; raises one of UNREACHABLE."""
    current_app.signature(name, args=arguments).apply_async(**_SEND | options)


def send_once(key: str, again_s: int, name: str, *arguments: Any, expires_s: float, failed: str) -> None:
    """Send a task unless the same `key` was sent within `again_s`; `failed` is logged if it cannot be sent."""
    try:
        if cache.add(key, 1, again_s):
            send(name, *arguments, expires=expires_s)
    except UNREACHABLE as error:
        logger.warning("%s: %s", failed, error)
