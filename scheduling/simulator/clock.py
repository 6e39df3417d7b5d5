"""Simulated time: SimPy's clock with callbacks."""

from __future__ import annotations

from collections.abc import Callable

import simpy


class _Call(simpy.Event):
    """A timeout that calls a function; a simulation makes hundreds of thousands."""

    def __init__(self, env: simpy.Environment, seconds: float, call: Callable[[], None]) -> None:
        self.env, self.callbacks = env, [lambda _: call()]
        self._ok, self._value = True, None
        env.schedule(self, delay=seconds)


class Clock:
    """Calls at the same time run in the order of their requests."""

    def __init__(self) -> None:
        self._env = simpy.Environment()
        self.now = 0.0

    def after(self, seconds: float, call: Callable[[], None]) -> None:
        _Call(self._env, seconds if seconds > 0.0 else 0.0, call)

    def run(self, stopped: Callable[[], bool]) -> None:
        """Until no event is left, or `stopped` returns True."""
        peek, step, never = self._env.peek, self._env.step, simpy.core.Infinity
        while (at := peek()) != never and not stopped():
            self.now = at
            step()
