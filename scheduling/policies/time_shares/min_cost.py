"""The most throughput for the money.

maximise sum_m throughput(m, X) / sum_m sum_j price_j * gang_m * X[m][j], X valid; prices are those of the rate card.
Jobs with little throughput for their cost wait. Source: Gavel (OSDI 2020), section 4.2.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from pydantic import Field

from scheduling.domain import Snapshot
from scheduling.policies.base import Parameters as BaseParameters
from scheduling.policies.capabilities import Answer, Capabilities, Needs
from scheduling.policies.time_shares.base import FractionParameters, FractionPolicy
from scheduling.policies.time_shares.programs.groups import Fractions
from scheduling.policies.time_shares.programs.throughput_per_cost import best_value, cost_of_columns
from scheduling.policies.time_shares.programs.ungrouping.ungroup import Shares, expand


class CostParameters(FractionParameters):
    normalised: bool = Field(default=False, description="Count each job's throughput relative to its own best.")


class MinCost(FractionPolicy):
    name: ClassVar[str] = "min_cost"
    title: ClassVar[str] = "Lowest cost"
    Parameters: ClassVar[type[BaseParameters]] = CostParameters
    # an idle GPU costs nothing
    capabilities = Capabilities(Answer.TIME_SHARES, needs=Needs.PRICES, time_dependent=False, work_conserving=False)
    parameters: CostParameters

    def solve(self, snapshot: Snapshot, found: Fractions) -> tuple[float, Shares]:
        per_step = 1.0 / found.fastest if self.parameters.normalised else np.ones(len(found.gang))
        worth, cost = found.worth_of_columns(per_step), cost_of_columns(found, dict(snapshot.prices))
        ratio, values = best_value(found, worth, cost, *self.limits(snapshot))
        return ratio, expand(found, values)
