"""Simulated time: SimPy's clock, seen as callbacks."""

from __future__ import annotations

from collections.abc import Callable

import simpy


class _Call(simpy.Event):
    """A timeout that calls; hundreds of thousands are made in a simulation."""

    def __init__(self, env: simpy.Environment, seconds: float, call: Callable[[], None]) -> None:
        self.env, self.callbacks = env, [lambda _: call()]
        self._ok, self._value = True, None
        env.schedule(self, delay=seconds)


class Clock:
    """Calls at the same time happen in the order in which they were asked for."""

    def __init__(self) -> None:
        self._env = simpy.Environment()
        self.now = 0.0

    def after(self, seconds: float, call: Callable[[], None]) -> None:
        _Call(self._env, seconds if seconds > 0.0 else 0.0, call)

    def run(self, stopped: Callable[[], bool]) -> None:
        """Until nothing is left to happen, or `stopped` says so."""
        peek, step, never = self._env.peek, self._env.step, simpy.core.Infinity
        while (at := peek()) != never and not stopped():
            self.now = at
            step()
