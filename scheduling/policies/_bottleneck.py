"""Minimise the largest theta that any job needs: makespan and finish-time fairness, exactly.

Job m needs steps_m / (rate_m * theta - spent_m) steps/s, convex and falling in theta. Jobs of one group differ in what
they need, and can still be summed: columns of the group can be split among its members as needed if and only if, for
every level l, what they offer above l covers what the members need above l (Strassen's theorem; only l = 0 and the
columns' own speeds matter). Each sum of needs is convex in theta, so tangents at the last theta under-estimate it, and
linear programs over tangents climb to the optimum from below (Kelley's method), quadratically near it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from scheduling.errors import SolverError
from scheduling.policies._fractions import Fractions, Shares, expand
from scheduling.policies._lp import INFINITY, Engine, Floats, LinearProgram

_ROUNDS = 60
_TOLERANCE = 1e-9


@dataclass(frozen=True, slots=True)
class Needs:
    """By job: `steps` / (`rate` * theta - `spent`) steps/s reach theta."""

    steps: Floats
    rate: Floats
    spent: Floats

    def at(self, theta: float) -> Floats:
        return np.asarray(self.steps / (self.rate * theta - self.spent))

    def slope(self, theta: float) -> Floats:
        return np.asarray(-self.steps * self.rate / (self.rate * theta - self.spent) ** 2)

    def alone(self, fastest: Floats) -> float:
        """No theta below this is in reach, even with a job's fastest column all the time."""
        return float(np.max((self.steps / fastest + self.spent) / self.rate, initial=0.0))


def minimise(found: Fractions, needs: Needs, engine: Engine, time_limit_s: float) -> tuple[float, Shares]:
    """(theta, shares) with the least theta."""
    best = np.array([service.steps_per_s.max() for service in found.service])
    start = theta = needs.alone(best[found.group_of])
    width = len(found.columns)
    costs = np.zeros(width + 1)
    costs[width] = 1.0
    program = found.program(costs, extra=1, maximise=False)
    program.add_row([width], [1.0], 1.0, INFINITY)  # theta, in units of the least that is thinkable
    values = np.zeros(width)
    for _ in range(_ROUNDS):
        if not _add_tangents(program, found, needs, theta, start, values):
            return theta, expand(found, values, needs.at(theta))
        solution = program.solve(engine, time_limit_s)
        values, theta = solution.values[:width], max(theta, float(solution.values[width]) * start)
    raise SolverError("no convergence")


def _add_tangents(
    program: LinearProgram, found: Fractions, needs: Needs, theta: float, unit: float, values: Floats
) -> bool:
    """A row for every group and level that falls short at `theta`; False where none does."""
    wanted, slope = needs.at(theta), needs.slope(theta)
    short = False
    for service, members in zip(found.service, found.members, strict=True):
        need, falls, given = wanted[members], slope[members], values[service.columns]
        for level in np.unique(np.append(service.steps_per_s, 0.0)):
            above = need > level
            total = float((need[above] - level).sum())
            offers = np.maximum(service.steps_per_s - level, 0.0) * service.mass
            if total - float(offers @ given) <= _TOLERANCE * float(need.sum()):
                continue
            short = True
            rate = float(falls[above].sum())
            size = max(total, -rate * theta)  # keeps the row's numbers near 1
            program.add_row(
                np.append(service.columns, len(values)),
                np.append(offers, -rate * unit) / size,
                (total - rate * theta) / size,
                INFINITY,
            )
    return short
