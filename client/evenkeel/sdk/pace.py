"""A ceiling on speed for emulated devices."""

from __future__ import annotations

import time
from collections.abc import Callable

SLICE_S = 0.05


class Pace:
    """At most `steps_per_s` steps a second, against an absolute schedule.

    Oversleeping is made up for by the schedule; time lost to slow steps or to a checkpoint is not,
    so no burst follows a pause.
    """

    def __init__(
        self,
        steps_per_s: float,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._period_s = 1.0 / steps_per_s
        self._clock, self._sleep = clock, sleep
        self._next_at = clock()

    def wait(self, interrupted: Callable[[], bool] = lambda: False) -> None:
        """Sleep until the next step may start, or until `interrupted()` holds."""
        now = self._clock()
        due_at, self._next_at = self._next_at, max(self._next_at, now) + self._period_s
        while now < due_at and not interrupted():
            self._sleep(min(due_at - now, SLICE_S))
            now = self._clock()
