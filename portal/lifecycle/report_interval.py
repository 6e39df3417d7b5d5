"""How often runs report: less often if there are many, so that reports leave room for other work."""

from __future__ import annotations

import logging
import math

from django.conf import settings
from django.core.cache import cache
from redis.exceptions import RedisError

from portal.jobs.models import Run
from scheduling.lifecycle import HOLDING

logger = logging.getLogger(__name__)
_KEY = "reporting:runs"
#: Well within the lease of a remote run.
_LONGEST_S = 120.0
_STEP = 1.25


def note_runs() -> None:
    """Rounds store the number of reporting runs."""
    count = Run.objects.filter(state__in=[state.value for state in HOLDING]).count()
    try:
        cache.set(_KEY, count, None)
    except RedisError as error:
        logger.warning("runs keep the pace of their reports: %s", error)


def interval_s() -> float:
    """EVENKEEL_REPORT_INTERVAL_S, or longer, so that all runs together stay within EVENKEEL_REPORTS_PER_S.

    In steps: the runs of a node report at the same moments as long as they have the same interval.
    """
    usual_s = float(settings.EVENKEEL_REPORT_INTERVAL_S)
    try:
        count = int(cache.get(_KEY, 0))
    except RedisError:
        return usual_s
    wanted_s = min(_LONGEST_S, count / settings.EVENKEEL_REPORTS_PER_S)
    if wanted_s <= usual_s:
        return usual_s
    return min(_LONGEST_S, usual_s * _STEP ** math.ceil(math.log(wanted_s / usual_s, _STEP) - 1e-9))
