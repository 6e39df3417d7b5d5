"""The smallest mean completion time: jobs matched with (worker, position from the end).

minimise sum over pairs of position * steps_m / T[m][j]: a job that runs k-th from the end of its worker delays itself
and the k - 1 after it. The first of each worker runs now. Workers of one type are interchangeable, so a position has
one place per worker. Jobs with gangs are weighted by their GPUs. Source: AlloX (EuroSys 2020), section 4.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from pydantic import Field
from scipy.optimize import linear_sum_assignment

from scheduling.capacity.cluster_view import queue_key
from scheduling.domain import Snapshot
from scheduling.policies.base import Parameters as BaseParameters
from scheduling.policies.time_shares.base import FractionParameters, FractionPolicy
from scheduling.policies.time_shares.programs.groups import Fractions
from scheduling.policies.time_shares.programs.last_answer import last_shares
from scheduling.policies.time_shares.programs.ungrouping.ungroup import Shares
from scheduling.solvers.lp import Floats, Ints


class MatchingParameters(FractionParameters):
    window: int = Field(
        default=400, ge=1, le=5_000, description="Of the jobs, so many that wait longest are matched (AlloX's alpha)."
    )


class MinMeanJct(FractionPolicy):
    name: ClassVar[str] = "min_mean_jct"
    title: ClassVar[str] = "Shortest mean completion time"
    Parameters: ClassVar[type[BaseParameters]] = MatchingParameters
    parameters: MatchingParameters

    def solve(self, snapshot: Snapshot, found: Fractions) -> tuple[float, Shares]:
        kept = self._kept(snapshot, found)
        free = found.capacity.copy()
        for job, kind in kept:
            free[kind] -= found.gang[found.group_of[job]]
        started = {job for job, _ in kept}
        order = sorted(range(len(found.jobs)), key=lambda n: queue_key(found.jobs[n]))
        chosen = np.array([n for n in order if n not in started][: self.parameters.window], dtype=np.int64)
        times = self._gpu_seconds(found, chosen)
        kinds, positions = _places(np.maximum(free, 0.0), len(chosen))
        costs = times[:, kinds] * positions[None, :]
        costs = np.where(np.isfinite(costs), costs, 1e30)
        jobs, places = linear_sum_assignment(costs)
        sums = float(costs[jobs, places].sum() / max(len(jobs), 1))
        # The last from the end run first.
        ranked = sorted(zip(jobs.tolist(), places.tolist(), strict=True), key=lambda item: -positions[item[1]])
        return sums, self._start(found, kept + [(int(chosen[job]), int(kinds[place])) for job, place in ranked])

    def _kept(self, snapshot: Snapshot, found: Fractions) -> list[tuple[int, int]]:
        """(job, type) of jobs that keep their GPUs: under the reference's rules all that were started."""
        if not self.parameters.compatible:
            return []
        number, before = {kind: n for n, kind in enumerate(found.types)}, last_shares(snapshot)
        return [
            (n, number[kind])
            for n, job in enumerate(found.jobs)
            for kind, share in before.get(job.id, {}).items()
            if share == 1.0 and kind in number
        ]

    def _gpu_seconds(self, found: Fractions, chosen: Ints) -> Floats:
        groups = found.group_of[chosen]
        steps = np.array([found.jobs[n].remaining_steps for n in chosen])
        with np.errstate(divide="ignore"):
            return np.asarray((steps * found.gang[groups])[:, None] / found.throughput[groups])

    def _start(self, found: Fractions, ranked: list[tuple[int, int]]) -> Shares:
        free = found.capacity.copy()
        shares: dict[tuple[str, ...], dict[str, float]] = {}
        for job, kind in ranked:
            group = found.group_of[job]
            gang = float(found.gang[group])
            if found.throughput[group, kind] > 0 and gang <= free[kind]:
                free[kind] -= gang
                shares[(found.jobs[job].id,)] = {found.types[kind]: 1.0}
        return shares


def _places(capacity: Floats, jobs: int) -> tuple[Ints, Floats]:
    """(type, position from the end) of every place that a matching of so many jobs can use."""
    kinds, positions = [], []
    for kind, gpus in enumerate(capacity.astype(int)):
        for place in range(jobs if gpus else 0):
            kinds.append(kind)
            positions.append(1 + place // int(gpus))
    return np.array(kinds, dtype=np.int64), np.array(positions, dtype=float)
