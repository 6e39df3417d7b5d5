"""Each job goes to the node whose free capacities point most in the direction of its demand.

Objective: maximise the dot product of demand and what is free, both as parts of the node's own capacity, over
processors, memory and GPUs (alignment); jobs with little work left come first, weighed against alignment by
`remaining_weight`. Source: Grandl et al., "Multi-Resource Packing for Cluster Schedulers" (SIGCOMM 2014), sections 3.2
and 3.3.2: score = alignment + remaining_weight * (mean alignment / mean work) * (less work).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from pydantic import Field

from scheduling.domain import Job
from scheduling.policies._packing import PackingPolicy
from scheduling.policies._packing import Parameters as PackingParameters
from scheduling.policies._yard import UNBOUNDED, Demand, Ints, Yard
from scheduling.policies.base import Parameters as BaseParameters


class Parameters(PackingParameters):
    shortest_first: bool = Field(
        default=True, description="Jobs of equal priority with less work left (GPU-seconds) are placed first."
    )


class Tetris(PackingPolicy):
    name: ClassVar[str] = "tetris"
    title: ClassVar[str] = "Tetris"
    Parameters: ClassVar[type[BaseParameters]] = Parameters

    def order(self, queue: Sequence[Job]) -> Sequence[Job]:
        if not self.parameters.shortest_first:
            return queue
        return sorted(queue, key=lambda job: (-job.priority, work(job)))

    def choose(self, yard: Yard, demand: Demand, rows: Ints, memory: Any) -> tuple[int, ...]:
        free = np.stack((yard.cpu[rows], yard.memory[rows], yard.gpu[rows].sum(axis=1)), axis=1)
        wanted = np.array([demand.cpu, demand.memory, demand.count * demand.milli])
        capacity = yard.capacity[rows].astype(float)
        capacity[(capacity <= 0) | (capacity >= UNBOUNDED)] = np.inf
        row = int(rows[np.argmax((free / capacity * (wanted / capacity)).sum(axis=1))])
        return yard.tightest(row, demand)


def work(job: Job) -> float:
    """GPU-seconds left on its fastest type; without curves, its steps."""
    speeds = [curve.at(job.min_gpus) for curve in job.curves.values()]
    fastest = max(speeds, default=0.0)
    left_s = job.remaining_steps / fastest if fastest > 0 else job.remaining_steps
    return left_s * job.min_gpus * job.gpu_milli
