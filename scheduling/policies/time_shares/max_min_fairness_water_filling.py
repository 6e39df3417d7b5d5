"""Max-min fairness, repeated for all jobs that are not at their bottleneck, level by level.

The lexicographically largest vector of throughput(m, X) / throughput(m, X_equal) * gang_m / weight_m, X valid. Source:
Gavel (OSDI 2020), section 4.3.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from scheduling.domain import Snapshot
from scheduling.policies.capabilities import Answer, Capabilities
from scheduling.policies.time_shares.base import FractionPolicy
from scheduling.policies.time_shares.gavel.programs import raised
from scheduling.policies.time_shares.max_min_fairness import steps_per_level
from scheduling.policies.time_shares.programs.groups import Fractions
from scheduling.policies.time_shares.programs.pricing_problem import JobClass
from scheduling.policies.time_shares.programs.ungrouping.ungroup import Shares, expand
from scheduling.policies.time_shares.programs.water_filling import Active, fill, raise_levels
from scheduling.policies.time_shares.programs.water_levels import LevelNode
from scheduling.solvers.lp import Floats


class MaxMinFairnessWaterFilling(FractionPolicy):
    name: ClassVar[str] = "max_min_fairness_water_filling"
    title: ClassVar[str] = "Max-min fairness, water filling"
    capabilities = Capabilities(Answer.TIME_SHARES, time_dependent=False)

    def solve(self, snapshot: Snapshot, found: Fractions) -> tuple[float, Shares]:
        weights = np.array([job.weight for job in found.jobs])
        per_level = steps_per_level(found)
        limits = self.limits(snapshot)

        def rates(active: Active) -> Floats:
            return np.where(active, weights, 0.0)

        if self.parameters.compatible:
            level = fill(found, per_level, rates, *limits)[0]
            return float((level / weights).min()), raised(found, level * per_level)
        level, values = raise_levels(found, lambda: _one_level(found, weights), per_level, weights, rates, *limits)
        return float((level / weights).min()), expand(found, values, level * per_level)


def _one_level(found: Fractions, weights: Floats) -> tuple[JobClass, LevelNode]:
    job_classes = JobClass.by(found.group_of, weights)
    return job_classes, LevelNode(1.0, units=np.arange(len(job_classes.first)))
