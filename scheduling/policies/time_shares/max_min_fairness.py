"""Max-min fairness over effective throughputs (least attained service).

maximise t subject to throughput(m, X) / throughput(m, X_equal) * gang_m / weight_m >= t for every job m, X valid.
Source: Gavel (OSDI 2020), section 4.1.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from scheduling.domain import Snapshot
from scheduling.policies.capabilities import Answer, Capabilities
from scheduling.policies.time_shares.base import FractionPolicy
from scheduling.policies.time_shares.gavel.programs import raised
from scheduling.policies.time_shares.programs.groups import Fractions
from scheduling.policies.time_shares.programs.max_min import MaxMinSearch, highest
from scheduling.policies.time_shares.programs.ungrouping.ungroup import Shares, expand
from scheduling.solvers.lp import Floats


def steps_per_level(found: Fractions) -> Floats:
    """By job: steps/s for each unit of throughput / throughput(X_equal) * gang."""
    return np.asarray((found.equal_share / found.gang)[found.group_of])


class MaxMinFairness(FractionPolicy):
    name: ClassVar[str] = "max_min_fairness"
    title: ClassVar[str] = "Max-min fairness"
    capabilities = Capabilities(Answer.TIME_SHARES, time_dependent=False)

    def solve(self, snapshot: Snapshot, found: Fractions) -> tuple[float, Shares]:
        per_level = steps_per_level(found) * np.array([job.weight for job in found.jobs])
        limits = self.limits(snapshot)
        level, values = highest(found, MaxMinSearch(per_level), *limits)
        if self.parameters.compatible:
            return level, raised(found, per_level)
        return level, expand(found, values, per_level * level)
