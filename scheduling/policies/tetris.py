"""Each job goes to the node whose free capacities point most in the direction of its demand.

Objective: maximise the dot product of demand and what is free, both as parts of the node's own capacity, over
processors, memory and GPUs (alignment); of jobs of equal priority those with less work left are placed first
(`shortest_first`). Source: Grandl et al., "Multi-Resource Packing for Cluster Schedulers" (SIGCOMM 2014), section 3.2;
its one score that weighs alignment against work is for a choice among all jobs, and here jobs are taken in order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from pydantic import Field

from scheduling.domain import Job
from scheduling.policies._packing import PackingPolicy
from scheduling.policies._packing import Parameters as PackingParameters
from scheduling.policies._view import View
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

    def order(self, field: View, queue: Sequence[Job]) -> Sequence[Job]:
        if not self.parameters.shortest_first:
            return queue
        return sorted(queue, key=lambda job: (-job.priority, work(field, job)))

    def choose(self, yard: Yard, demand: Demand, rows: Ints, memory: Any) -> tuple[int, ...]:
        capacity = yard.capacity[rows].astype(float)
        capacity[(capacity <= 0) | (capacity >= UNBOUNDED)] = np.inf
        row = int(rows[np.argmax((yard.free(rows) / capacity * (demand.total / capacity)).sum(axis=1))])
        return yard.tightest(row, demand)


def work(field: View, job: Job) -> float:
    """GPU-seconds left on its least gang where that is fastest; infinite where nothing can run it."""
    gangs = [(span.low, span.at(span.low)) for span in field.spans(job).values()]
    seconds = [job.remaining_steps / speed * count for count, speed in gangs if speed > 0]
    return min(seconds, default=math.inf) * job.gpu_milli
