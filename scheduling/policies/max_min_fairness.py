"""Max-min fairness over effective throughputs (least attained service).

maximise t subject to throughput(m, X) / throughput(m, X_equal) * gang_m / weight_m >= t for every job m, X valid.
Source: Gavel (OSDI 2020), section 4.1.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from scheduling.domain import Snapshot
from scheduling.policies._fraction_policy import FractionPolicy
from scheduling.policies._fractions import Fractions
from scheduling.policies._lp import Floats
from scheduling.policies._needs import Tangents, optimise
from scheduling.policies._shares import Shares, expand
from scheduling.policies._spread import raised


def steps_per_level(found: Fractions) -> Floats:
    """By job: steps/s for each unit of throughput / throughput(X_equal) * gang."""
    return np.asarray((found.equal_share / found.gang)[found.group_of])


class MaxMinFairness(FractionPolicy):
    name: ClassVar[str] = "max_min_fairness"
    title: ClassVar[str] = "Max-min fairness"
    ages: ClassVar[bool] = False

    def solve(self, snapshot: Snapshot, found: Fractions) -> tuple[float, Shares]:
        per_level = steps_per_level(found) * np.array([job.weight for job in found.jobs])
        costs = np.zeros(len(found.columns) + 1)
        costs[-1] = 1.0
        tangents = Tangents(found, found.program(costs, extra=1))
        limits = self.parameters.solver, self.parameters.solver_time_limit_s
        level, values, _ = optimise(tangents, lambda t: (per_level * t, per_level), _beyond(found, per_level), *limits)
        if self.parameters.compatible:
            return level, raised(found, per_level)
        return level, expand(found, values, per_level * level)


def _beyond(found: Fractions, per_level: Floats) -> float:
    """A level that nobody can pass: the one at which some job needs its fastest column all the time."""
    return float(np.min(found.fastest[found.group_of] / per_level))
