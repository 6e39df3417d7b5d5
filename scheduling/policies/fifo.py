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
from scheduling.policies._memory import promised
from scheduling.policies._ordered import maximise_in_order
from scheduling.policies._shares import Shares
from scheduling.policies._view import queue_key


class Fifo(FractionPolicy):
    name: ClassVar[str] = "fifo"
    title: ClassVar[str] = "First in, first out, by throughput"
    apart: ClassVar[bool] = True
    strictly_shared: ClassVar[bool] = True

    def solve(self, snapshot: Snapshot, found: Fractions) -> tuple[float, Shares]:
        if self.parameters.compatible:
            return self._in_turn(snapshot, found)
        position = np.empty(len(found.jobs), dtype=np.int64)
        position[sorted(range(len(found.jobs)), key=lambda n: queue_key(found.jobs[n]))] = np.arange(len(found.jobs))
        return maximise_in_order(found, position, self.parameters.solver, self.parameters.solver_time_limit_s)

    def _in_turn(self, snapshot: Snapshot, found: Fractions) -> tuple[float, Shares]:
        """The reference's rule: each job in order gets the fastest type with room, or (agnostic) keeps the one that it
        has and else gets any; who finds no room holds up all behind."""
        free, shares = found.capacity.copy(), dict[tuple[str, ...], dict[str, float]]()
        order = sorted(range(len(found.jobs)), key=lambda n: queue_key(found.jobs[n]))
        kept = promised(snapshot) if self.parameters.variant == "agnostic" else {}
        order.sort(key=lambda n: found.jobs[n].id not in kept)
        for n in order:
            job, row = found.jobs[n], found.throughput[found.group_of[n]]
            (fits,) = np.nonzero(free >= job.min_gpus)
            if not len(fits):
                break
            first = kept.get(job.id)
            kind = found.types.index(next(iter(first))) if first else int(fits[np.argmax(row[fits])])
            if row[kind] > 0:
                free[kind] -= job.min_gpus
                shares[(job.id,)] = {found.types[kind]: 1.0}
        return float(len(shares)), shares
