"""The largest sum of effective throughputs, in steps/s or normalised by each job's best.

maximise sum_m throughput(m, X), X valid. Starves slow jobs; the reference for raw speed. Source: Gavel (OSDI 2020),
section 4.2.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from pydantic import Field

from scheduling.domain import Snapshot
from scheduling.policies.base import Parameters as BaseParameters
from scheduling.policies.capabilities import Answer, Capabilities
from scheduling.policies.time_shares.base import FractionParameters, FractionPolicy
from scheduling.policies.time_shares.gavel.programs import best
from scheduling.policies.time_shares.programs.groups import Fractions
from scheduling.policies.time_shares.programs.max_sum import largest_sum
from scheduling.policies.time_shares.programs.ungrouping.ungroup import Shares, expand


class SumParameters(FractionParameters):
    normalised: bool = Field(default=False, description="Count each job's throughput relative to its own best.")


class MaxSumThroughput(FractionPolicy):
    name: ClassVar[str] = "max_sum_throughput"
    title: ClassVar[str] = "Largest throughput sum"
    capabilities = Capabilities(Answer.TIME_SHARES, time_dependent=False)
    Parameters: ClassVar[type[BaseParameters]] = SumParameters
    parameters: SumParameters

    def solve(self, snapshot: Snapshot, found: Fractions) -> tuple[float, Shares]:
        per_step = 1.0 / found.fastest if self.parameters.normalised else np.ones(len(found.gang))
        worth = found.worth_of_columns(per_step)
        objective, values = largest_sum(found, worth, *self.limits(snapshot))
        return objective, best(found, per_step) if self.parameters.compatible else expand(found, values)
