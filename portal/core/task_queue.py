"""Celery tasks that are sent by name, from modules that stand below the task's own.

A test holds each name against Celery's registry.
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

#: What sending raises where the broker or the cache is away.
UNREACHABLE = (RedisError, OperationalError, OSError)
#: Connections to a broker that is gone fail at once instead of holding up a request.
_SEND: dict[str, Any] = {"retry": False, "ignore_result": True}


def send(name: str, *arguments: Any, **options: Any) -> None:
    """Send a task; raises one of UNREACHABLE."""
    current_app.signature(name, args=arguments).apply_async(**_SEND | options)


def send_once(key: str, again_s: int, name: str, *arguments: Any, expires_s: float, failed: str) -> None:
    """Send a task unless the same `key` was sent within `again_s`; `failed` says in the log what is then missing."""
    try:
        if cache.add(key, 1, again_s):
            send(name, *arguments, expires=expires_s)
    except UNREACHABLE as error:
        logger.warning("%s: %s", failed, error)
