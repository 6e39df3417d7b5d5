"""Max-min fairness over effective throughputs (least attained service).

maximise t subject to throughput(m, X) / throughput(m, X_equal) * gang_m / weight_m >= t for every job m, X valid.
Source: Gavel (OSDI 2020), section 4.1.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from scheduling.domain import Job, Snapshot
from scheduling.policies._fraction_policy import FractionPolicy
from scheduling.policies._fractions import Fractions, Shares, expand
from scheduling.policies._lp import INFINITY


class MaxMinFairness(FractionPolicy):
    name: ClassVar[str] = "max_min_fairness"
    title: ClassVar[str] = "Max-min fairness"

    def key(self, job: Job) -> float:
        return job.weight

    def solve(self, snapshot: Snapshot, found: Fractions) -> tuple[float, Shares]:
        width = len(found.columns)
        costs = np.zeros(width + 1)
        costs[width] = 1.0
        program = found.program(costs, extra=1)
        worth = found.gang / (found.equal_share * np.array([job.weight for job in found.first]))
        for service, per_step, count in zip(found.service, worth, found.count, strict=True):
            columns = np.append(service.columns, width)
            program.add_row(columns, np.append(service.offers * per_step / count, -1.0), 0.0, INFINITY)
        solution = program.solve(self.parameters.solver, self.parameters.solver_time_limit_s)
        return solution.objective, expand(found, solution.values[:width])
