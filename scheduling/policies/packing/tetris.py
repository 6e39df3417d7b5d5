"""Each job goes to the node whose free capacity is best aligned with its demand.

Objective: maximise the dot product of demand and free capacity, both as fractions of the node's capacity, over CPUs,
memory and GPUs (alignment). Of jobs of equal priority those with less remaining work are placed first
(`shortest_first`). With `joint` the next job and its node are chosen together: the largest alignment, GPU memory
included, minus the job's remaining work, weighted so that both count equally on average. Source: Grandl et al.,
"Multi-Resource Packing for Cluster Schedulers" (SIGCOMM 2014), sections 3.2 (alignment) and 3.3 (one score for both).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from pydantic import Field

from scheduling.capacity.cluster_view import RoundView, view
from scheduling.capacity.node_capacity import UNBOUNDED, Demand, Ints, NodeCapacity
from scheduling.domain import Job, Snapshot
from scheduling.policies.base import Parameters as BaseParameters
from scheduling.policies.packing.base import PackingPolicy, Planned
from scheduling.policies.packing.base import Parameters as PackingParameters

_WINDOW = 64


class Parameters(PackingParameters):
    shortest_first: bool = Field(
        default=True, description="Jobs of equal priority with less work left (GPU-seconds) are placed first."
    )
    joint: bool = Field(
        default=False,
        description="The next is chosen among the first 64 that wait, by alignment and work left in one score.",
    )


class Tetris(PackingPolicy):
    name: ClassVar[str] = "tetris"
    title: ClassVar[str] = "Tetris"
    Parameters: ClassVar[type[BaseParameters]] = Parameters

    def order(self, field: RoundView, queue: Sequence[Job]) -> Sequence[Job]:
        if not self.parameters.shortest_first:
            return queue
        return sorted(queue, key=lambda job: (-job.priority, work(field, job)))

    def plan(self, snapshot: Snapshot, node_capacity: NodeCapacity, wanted: Mapping[str, Demand]) -> Planned:
        if not self.parameters.joint:
            return Planned()
        jobs = {job.id: job for job in snapshot.jobs}
        left = {key: wanted[key] for key in list(wanted)[:_WINDOW]}
        field, trial, found = view(snapshot), node_capacity.copy(), dict[str, tuple[int, ...]]()
        works = {key: work(field, jobs[key]) for key in left}
        while True:
            best = {key: fit for key, demand in left.items() if (fit := best_aligned(trial, demand)) is not None}
            if not best:
                return Planned(found)
            level = max(jobs[key].priority for key in best)
            best = {key: fit for key, fit in best.items() if jobs[key].priority == level}
            mean_work = float(np.mean([works[key] for key in best])) or 1.0
            mean_fit = float(np.mean([fit for fit, _ in best.values()]))
            scores = {key: fit - mean_fit * works[key] / mean_work for key, (fit, _) in best.items()}
            key = max(scores, key=lambda key: (scores[key], -jobs[key].number))
            found[key] = trial.tightest(best[key][1], left[key])
            trial.book(left.pop(key), found[key])

    def choose(self, node_capacity: NodeCapacity, demand: Demand, rows: Ints, memory: Any) -> tuple[int, ...]:
        capacity = node_capacity.capacity[rows].astype(float)
        capacity[(capacity <= 0) | (capacity >= UNBOUNDED)] = np.inf
        row = int(rows[np.argmax((node_capacity.free(rows) / capacity * (demand.total / capacity)).sum(axis=1))])
        return node_capacity.tightest(row, demand)


def best_aligned(node_capacity: NodeCapacity, demand: Demand) -> tuple[float, int] | None:
    """(alignment, row) of the best aligned node; None if the demand fits nowhere. GPU memory counts by device."""
    rows = node_capacity.fitting(demand)
    if not len(rows):
        return None
    capacity = node_capacity.capacity[rows].astype(float)
    capacity[(capacity <= 0) | (capacity >= UNBOUNDED)] = np.inf
    fits = (node_capacity.free(rows) / capacity * (demand.total / capacity)).sum(axis=1)
    if demand.gpu_memory:
        of_each = node_capacity.ground_memory(rows)
        fits = fits + (node_capacity.gpu_memory[rows] / of_each[:, None]).max(axis=1) * demand.gpu_memory / of_each
    at = int(np.argmax(fits))
    return float(fits[at]), int(rows[at])


def work(field: RoundView, job: Job) -> float:
    """Remaining GPU-seconds on the least gang of the fastest type; infinite if no type can run it."""
    gangs = [(span.low, span.at(span.low)) for span in field.spans(job).values()]
    seconds = [job.remaining_steps / speed * count for count, speed in gangs if speed > 0]
    return min(seconds, default=math.inf) * job.gpu_milli
