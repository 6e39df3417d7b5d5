"""First in, first out as a program: the earlier a job was submitted, the more its throughput counts.

maximise sum_m throughput(m, X) / throughput(m, X_fastest) * (M - position_m), X valid; positions in queue order. The
policy that starts jobs in order and never moves them is `fifo_gang`. Source: Gavel (OSDI 2020), section 4.2.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from scheduling.capacity.cluster_view import queue_key
from scheduling.domain import Snapshot
from scheduling.policies.capabilities import Answer, Capabilities
from scheduling.policies.time_shares.base import FractionPolicy
from scheduling.policies.time_shares.gavel.fifo_queue import Queue
from scheduling.policies.time_shares.programs.groups import Fractions, build
from scheduling.policies.time_shares.programs.last_answer import last_shares, remembered
from scheduling.policies.time_shares.programs.ungrouping.ungroup import Shares
from scheduling.policies.time_shares.programs.weighted_sum import maximise_in_order

_DRAWN = "drawn"


class Fifo(FractionPolicy):
    name: ClassVar[str] = "fifo"
    title: ClassVar[str] = "First in, first out, by throughput"
    apart: ClassVar[bool] = True
    capabilities = Capabilities(Answer.TIME_SHARES, time_dependent=False, strict_shares=True)

    def solve(self, snapshot: Snapshot, found: Fractions) -> tuple[float, Shares]:
        if self.parameters.compatible:
            queue, _ = self._queue(snapshot, found)
            shares: Shares = {(job,): {kind: 1.0} for job, kind in queue.in_order()}
            return float(len(shares)), shares
        position = np.empty(len(found.jobs), dtype=np.int64)
        position[sorted(range(len(found.jobs)), key=lambda n: queue_key(found.jobs[n]))] = np.arange(len(found.jobs))
        return maximise_in_order(found, position, *self.limits(snapshot))

    def fractions(self, snapshot: Snapshot) -> Fractions:
        if not self.parameters.compatible:
            return super().fractions(snapshot)
        # even when agnostic, no job gets a type on which it cannot run
        return build(snapshot, variant="perf", pair_threshold=self.parameters.pair_threshold, apart=True)

    def memory(self, snapshot: Snapshot, found: Fractions) -> dict[str, Any]:
        return {_DRAWN: self._queue(snapshot, found)[1]} if self.parameters.compatible else {}

    def _queue(self, snapshot: Snapshot, found: Fractions) -> tuple[Queue, int]:
        """The reference's rule, and how many random numbers it has consumed."""
        queue, drawn = Queue(found), int(remembered(snapshot).get(_DRAWN, 0))
        if self.parameters.variant != "agnostic":
            queue.by_speed()
            return queue, drawn
        before = {job: next(iter(by_type)) for job, by_type in last_shares(snapshot).items() if by_type}
        return queue, queue.blindly(before, drawn)
