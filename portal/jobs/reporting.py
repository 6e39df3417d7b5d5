"""How often runs are to report. With many of them less often, so that reports leave room for everything else."""

from __future__ import annotations

import logging
import random

from django.conf import settings
from django.core.cache import cache
from redis.exceptions import RedisError

from portal.jobs.models import Run
from scheduling.lifecycle import HOLDING

logger = logging.getLogger(__name__)
_KEY = "reporting:runs"
#: Well within the lease of a remote run.
_LONGEST_S = 120.0
#: Runs that were stretched together do not go on together.
_SPREAD = 0.1


def note_runs() -> None:
    """Count those that report; rounds do."""
    count = Run.objects.filter(state__in=[state.value for state in HOLDING]).count()
    try:
        cache.set(_KEY, count, None)
    except RedisError as error:
        logger.warning("runs keep the pace of their reports: %s", error)


def interval_s() -> float:
    """EVENKEEL_REPORT_INTERVAL_S, or as much longer as keeps all runs together within EVENKEEL_REPORTS_PER_S."""
    usual_s = settings.EVENKEEL_REPORT_INTERVAL_S
    try:
        count = int(cache.get(_KEY, 0))
    except RedisError:
        return float(usual_s)
    return float(max(usual_s, min(_LONGEST_S, count / settings.EVENKEEL_REPORTS_PER_S)))


def next_s() -> float:
    """For one run's answer."""
    usual_s, wanted_s = settings.EVENKEEL_REPORT_INTERVAL_S, interval_s()
    return wanted_s if wanted_s <= usual_s else wanted_s * random.uniform(1 - _SPREAD, 1 + _SPREAD)  # noqa: S311  # nosec B311
