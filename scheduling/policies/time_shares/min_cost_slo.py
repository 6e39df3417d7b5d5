"""The most throughput for the money, meeting every deadline that can be met.

As min_cost, subject to throughput(m, X) >= steps_m / time left for every job with a deadline. If the deadlines cannot
all be met, they are dropped one by one, the worst first; reasons say how late these jobs will be. Source: Gavel (OSDI
2020), section 4.2.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from scheduling.domain import Allocation, Job, Reason, Snapshot
from scheduling.domain.reason_codes import ReasonCode
from scheduling.policies.capabilities import Answer, Capabilities, Needs
from scheduling.policies.time_shares.min_cost import MinCost
from scheduling.policies.time_shares.programs.cutting_planes import CuttingPlanes, optimise
from scheduling.policies.time_shares.programs.groups import Fractions
from scheduling.policies.time_shares.programs.throughput_per_cost import best_ratio, cost_of_columns
from scheduling.policies.time_shares.programs.ungrouping.ungroup import Shares, achieved, expand
from scheduling.solvers.lp import INFINITY, Floats

_SURE = 1 - 1e-9


class MinCostSlo(MinCost):
    name: ClassVar[str] = "min_cost_slo"
    title: ClassVar[str] = "Lowest cost within deadlines"
    capabilities = Capabilities(Answer.TIME_SHARES, needs=Needs.PRICES, work_conserving=False)

    def allocate(self, snapshot: Snapshot) -> Allocation:
        answer = super().allocate(snapshot)
        missed = self._missed(snapshot, answer.shares or {})
        return Allocation(
            shares=answer.shares,
            reasons={**answer.reasons, **missed},
            figures={**answer.figures, "deadlines_missed": float(len(missed))},
        )

    def solve(self, snapshot: Snapshot, found: Fractions) -> tuple[float, Shares]:
        limits = self.limits(snapshot)
        needs = self._affordable(snapshot, found)
        program = found.program(extra=1)
        per_step = 1.0 / found.fastest if self.parameters.normalised else np.ones(len(found.gang))
        worth, cost = found.worth_of_columns(per_step), cost_of_columns(found, dict(snapshot.prices))
        tangents = CuttingPlanes(found, program)
        no_slope = np.zeros(len(needs))

        def constant(_: float) -> tuple[Floats, Floats]:
            return needs, no_slope

        while True:
            ratio, values = best_ratio(program, worth, cost, *limits)
            # The needs are constant: rows that the new answer violates are added until it violates none.
            if not (tangents.add(constant, 0.0, values) or tangents.add_cuts(constant, 0.0, values)):
                return ratio, expand(found, values, needs)

    def _affordable(self, snapshot: Snapshot, found: Fractions) -> Floats:
        """Steps/s that deadlines ask for; 0 for jobs without a deadline, or with a dropped one."""
        left_s = np.array([np.inf if job.deadline is None else job.deadline - snapshot.now for job in found.jobs])
        steps = np.array([job.remaining_steps for job in found.jobs])
        fastest = found.fastest[found.group_of]
        needs = np.where(left_s > 0, steps / np.maximum(left_s, 1e-9), 0.0)
        needs = np.where(needs <= fastest, needs, 0.0)
        while (needs > 0).any() and self._common_part(snapshot, found, needs) < _SURE:
            needs[int(np.argmax(needs / fastest))] = 0.0
        return needs

    def _common_part(self, snapshot: Snapshot, found: Fractions, needs: Floats) -> float:
        """The largest fraction of all needs that can be met at once, at most 1."""
        costs = np.zeros(len(found.columns) + 1)
        costs[-1] = 1.0
        program = found.program(costs, extra=1)
        program.add_row([len(found.columns)], [1.0], -INFINITY, 1.0)
        limits = self.limits(snapshot)
        part, _, _ = optimise(CuttingPlanes(found, program), lambda t: (needs * t, needs), 1.0, *limits)
        return part

    def _missed(self, snapshot: Snapshot, shares: Shares) -> dict[str, Reason]:
        found = self.fractions(snapshot)
        speeds = achieved(found, shares)
        reasons = {job.id: _lateness(job, speeds[job.id], snapshot.now) for job in found.jobs}
        return {key: reason for key, reason in reasons.items() if reason is not None}


def _lateness(job: Job, steps_per_s: float, now: float) -> Reason | None:
    if job.deadline is None:
        return None
    late_s = now + job.remaining_steps / steps_per_s - job.deadline if steps_per_s > 0 else None
    if late_s is not None and late_s <= 1e-6 * max(1.0, job.deadline - now):
        return None
    how = f"about {late_s:.0f} s late at the speed it is given" if late_s is not None else "not served for now"
    text = f"Its deadline cannot be met together with the others: it would be {how}."
    return Reason(ReasonCode.DEADLINE_MISSED, text, {"late_s": late_s})
