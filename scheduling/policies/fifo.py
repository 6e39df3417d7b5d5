"""First in, first out as a program: the earlier a job came, the more its throughput counts.

maximise sum_m throughput(m, X) / throughput(m, X_fastest) * (M - position_m), X valid; positions in queue order. The
policy that starts jobs in order and never moves them is `fifo_gang`. Source: Gavel (OSDI 2020), section 4.2.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from scheduling.domain import Snapshot
from scheduling.policies._fraction_policy import FractionPolicy
from scheduling.policies._fractions import Fractions
from scheduling.policies._ordered import maximise_in_order
from scheduling.policies._shares import Shares
from scheduling.policies._view import queue_key


class Fifo(FractionPolicy):
    name: ClassVar[str] = "fifo"
    title: ClassVar[str] = "First in, first out, by throughput"
    apart: ClassVar[bool] = True

    def solve(self, snapshot: Snapshot, found: Fractions) -> tuple[float, Shares]:
        position = np.empty(len(found.jobs), dtype=np.int64)
        position[sorted(range(len(found.jobs)), key=lambda n: queue_key(found.jobs[n]))] = np.arange(len(found.jobs))
        return maximise_in_order(found, position, self.parameters.solver, self.parameters.solver_time_limit_s)
