"""Minimises the largest rho: how much later a job ends than on its own share of the cluster.

minimise max_m rho_m, rho_m = (t_m + steps_m / throughput(m, X)) / (t_isolated_m + steps_m / throughput(m, X_isolated)),
X valid; exactly, without a search (see programs/cutting_planes.py). Source: Themis (NSDI 2020); Gavel (OSDI 2020),
section 4.1.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from scheduling.domain import Snapshot
from scheduling.policies.time_shares.base import FractionPolicy
from scheduling.policies.time_shares.gavel.programs import least_late
from scheduling.policies.time_shares.programs.groups import Fractions
from scheduling.policies.time_shares.programs.last_answer import remembered
from scheduling.policies.time_shares.programs.max_min import MakespanSearch, soonest
from scheduling.policies.time_shares.programs.ungrouping.ungroup import Shares, expand
from scheduling.solvers.lp import Floats


class FinishTimeFairness(FractionPolicy):
    name: ClassVar[str] = "finish_time_fairness"
    title: ClassVar[str] = "Finish-time fairness"

    def solve(self, snapshot: Snapshot, found: Fractions) -> tuple[float, Shares]:
        isolated = _isolated(found)
        steps = np.array([max(job.remaining_steps, 1.0) for job in found.jobs])
        spent = np.array([max(0.0, snapshot.now - job.submitted_at) for job in found.jobs])
        race = MakespanSearch(steps, _needed(snapshot, found, isolated) + steps / isolated, spent)
        if self.parameters.compatible:
            return least_late(found, race)
        rho, values = soonest(found, race, *self.limits(snapshot))
        return rho, expand(found, values, race.needs(rho)[0])

    def memory(self, snapshot: Snapshot, found: Fractions) -> dict[str, Any]:
        isolated = _isolated(found)
        rows = zip(found.jobs, _needed(snapshot, found, isolated).tolist(), isolated.tolist(), strict=True)
        return {job.id: [needed, job.done_steps, speed] for job, needed, speed in rows}


def _isolated(found: Fractions) -> Floats:
    """Steps/s of each job on its isolated share of the cluster."""
    return np.asarray((found.throughput * found.isolated).sum(axis=1)[found.group_of])


def _needed(snapshot: Snapshot, found: Fractions, isolated: Floats) -> Floats:
    """t_isolated: seconds that the steps done would have taken on the job's isolated share, as large as it was then."""
    known = remembered(snapshot)
    return np.array(
        [
            known[job.id][0] + (job.done_steps - known[job.id][1]) / known[job.id][2]
            if job.id in known
            else job.done_steps / speed
            for job, speed in zip(found.jobs, isolated.tolist(), strict=True)
        ]
    )
