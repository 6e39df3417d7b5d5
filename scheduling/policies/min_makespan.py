"""The earliest end of the last job.

minimise max_m steps_m / throughput(m, X), X valid; exactly, without a search (see _needs).
Source: Gavel (OSDI 2020), section 4.2.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from scheduling.domain import Snapshot
from scheduling.policies._fraction_policy import FractionPolicy
from scheduling.policies._fractions import Fractions
from scheduling.policies._reach import Race, soonest
from scheduling.policies._reference import searched
from scheduling.policies._shares import Shares, expand
from scheduling.policies._spread import met


class MinMakespan(FractionPolicy):
    name: ClassVar[str] = "min_makespan"
    title: ClassVar[str] = "Shortest makespan"

    def solve(self, snapshot: Snapshot, found: Fractions) -> tuple[float, Shares]:
        steps = np.array([max(job.remaining_steps, 1.0) for job in found.jobs])
        race = Race(steps, np.ones(len(steps)), np.zeros(len(steps)))
        theta, values = soonest(found, race, *self.limits(snapshot))
        if self.parameters.compatible:
            theta = searched(theta)
            return theta, met(found, race.needs(theta)[0])
        return theta, expand(found, values, race.needs(theta)[0])
