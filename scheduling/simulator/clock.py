"""Simulated time: SimPy's clock, seen as callbacks."""

from __future__ import annotations

from collections.abc import Callable

import simpy


class Clock:
    """Calls at the same time happen in the order in which they were asked for."""

    def __init__(self) -> None:
        self._env = simpy.Environment()

    @property
    def now(self) -> float:
        return float(self._env.now)

    def after(self, seconds: float, call: Callable[[], None]) -> None:
        timeout = self._env.timeout(max(0.0, seconds))
        assert timeout.callbacks is not None
        timeout.callbacks.append(lambda _: call())

    def run(self, stopped: Callable[[], bool]) -> None:
        """Until nothing is left to happen, or `stopped` says so."""
        env = self._env
        while env.peek() != simpy.core.Infinity and not stopped():
            env.step()
