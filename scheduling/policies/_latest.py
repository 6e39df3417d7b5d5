"""Minimise the largest theta that any job needs: makespan and finish-time fairness, exactly."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from scheduling.policies._fractions import Fractions
from scheduling.policies._lp import INFINITY, Engine, Floats
from scheduling.policies._needs import Tangents, optimise


@dataclass(frozen=True, slots=True)
class Race:
    """By job: `steps` / (`rate` * theta - `spent`) steps/s reach theta."""

    steps: Floats
    rate: Floats
    spent: Floats

    def needs(self, theta: float) -> tuple[Floats, Floats]:
        left = self.rate * theta - self.spent
        return self.steps / left, -self.steps * self.rate / left**2

    def alone(self, fastest: Floats) -> float:
        """No theta below this is in reach, even with a job's fastest column all the time."""
        return float(np.max((self.steps / fastest + self.spent) / self.rate, initial=0.0))


def minimise(found: Fractions, race: Race, engine: Engine, time_limit_s: float) -> tuple[float, Floats]:
    """(theta, value of each column) with the least theta."""
    start = race.alone(found.fastest[found.group_of])
    width = len(found.columns)
    costs = np.zeros(width + 1)
    costs[width] = 1.0
    program = found.program(costs, extra=1, maximise=False)
    program.add_row([width], [1.0], 1.0, INFINITY)
    theta, values, _ = optimise(Tangents(found, program, start), race.needs, start, engine, time_limit_s)
    return theta, values
