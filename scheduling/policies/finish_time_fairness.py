"""The smallest largest rho: how much later than on a share of the cluster of its own a job ends.

minimise max_m rho_m, rho_m = (t_m + steps_m / throughput(m, X)) / (t_isolated_m + steps_m / throughput(m, X_isolated)),
X valid; exactly, without a search (see _needs). Source: Themis (NSDI 2020); Gavel (OSDI 2020), section 4.1.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from scheduling.domain import Snapshot
from scheduling.policies._fraction_policy import FractionPolicy
from scheduling.policies._fractions import Fractions
from scheduling.policies._latest import Race, minimise
from scheduling.policies._shares import Shares


class FinishTimeFairness(FractionPolicy):
    name: ClassVar[str] = "finish_time_fairness"
    title: ClassVar[str] = "Finish-time fairness"

    def solve(self, snapshot: Snapshot, found: Fractions) -> tuple[float, Shares]:
        isolated = (found.throughput * found.isolated).sum(axis=1)[found.group_of]
        steps = np.array([max(job.remaining_steps, 1.0) for job in found.jobs])
        done = np.array([job.done_steps for job in found.jobs])
        spent = np.array([max(0.0, snapshot.now - job.submitted_at) for job in found.jobs])
        race = Race(steps, (done + steps) / isolated, spent)
        return minimise(found, race, self.parameters.solver, self.parameters.solver_time_limit_s)
