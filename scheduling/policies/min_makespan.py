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
from scheduling.policies._reach import Climb, highest
from scheduling.policies._reference import searched
from scheduling.policies._shares import Shares, expand
from scheduling.policies._spread import met


class MinMakespan(FractionPolicy):
    name: ClassVar[str] = "min_makespan"
    title: ClassVar[str] = "Shortest makespan"

    def solve(self, snapshot: Snapshot, found: Fractions) -> tuple[float, Shares]:
        steps = np.array([max(job.remaining_steps, 1.0) for job in found.jobs])
        alone = float(np.max(steps / found.fastest[found.group_of]))
        level, values = highest(found, Climb(steps / alone), *self.limits(snapshot))
        makespan = alone / level
        if self.parameters.compatible:
            makespan = searched(makespan)
            return makespan, met(found, steps / makespan)
        return makespan, expand(found, values, steps / makespan)
