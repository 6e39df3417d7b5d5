"""The earliest end of the last job.

minimise max_m steps_m / throughput(m, X), X valid; exactly, without a search (see programs/cutting_planes.py). Source:
Gavel (OSDI 2020), section 4.2.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from scheduling.domain import Snapshot
from scheduling.policies.time_shares.base import FractionPolicy
from scheduling.policies.time_shares.gavel.objective import searched
from scheduling.policies.time_shares.gavel.programs import met
from scheduling.policies.time_shares.programs.groups import Fractions
from scheduling.policies.time_shares.programs.max_min import MaxMinSearch, highest
from scheduling.policies.time_shares.programs.ungrouping.ungroup import Shares, expand


class MinMakespan(FractionPolicy):
    name: ClassVar[str] = "min_makespan"
    title: ClassVar[str] = "Shortest makespan"

    def solve(self, snapshot: Snapshot, found: Fractions) -> tuple[float, Shares]:
        steps = np.array([max(job.remaining_steps, 1.0) for job in found.jobs])
        alone = float(np.max(steps / found.fastest[found.group_of]))
        level, values = highest(found, MaxMinSearch(steps / alone), *self.limits(snapshot))
        makespan = alone / level
        if self.parameters.compatible:
            makespan = searched(makespan)
            return makespan, met(found, steps / makespan)
        return makespan, expand(found, values, steps / makespan)
