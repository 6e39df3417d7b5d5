"""The job that could end soonest comes first.

maximise sum_m throughput(m, X) / throughput(m, X_fastest) * (M - position_m), X valid; positions by steps_m /
throughput(m, X_fastest). Source: Gavel (OSDI 2020), section 4.2.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from scheduling.domain import Snapshot
from scheduling.policies.time_shares.base import FractionPolicy
from scheduling.policies.time_shares.programs.groups import Fractions
from scheduling.policies.time_shares.programs.ungrouping.ungroup import Shares
from scheduling.policies.time_shares.programs.weighted_sum import maximise_in_order


class ShortestJobFirst(FractionPolicy):
    name: ClassVar[str] = "shortest_job_first"
    title: ClassVar[str] = "Shortest job first"
    apart: ClassVar[bool] = True

    def solve(self, snapshot: Snapshot, found: Fractions) -> tuple[float, Shares]:
        alone = found.throughput.max(axis=1)[found.group_of]
        left_s = np.array([job.remaining_steps for job in found.jobs]) / alone
        position = np.empty(len(found.jobs), dtype=np.int64)
        position[np.argsort(left_s, kind="stable")] = np.arange(len(found.jobs))
        return maximise_in_order(found, position, *self.limits(snapshot))
