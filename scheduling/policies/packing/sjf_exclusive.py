"""Every job uses whole GPUs alone, whatever share it asks for; the shortest remaining jobs go first.

Objective: minimise mean completion time without sharing. Constraints: whole devices, CPUs and memory of one node.
Baseline of spec: co-placement (the thesis's SJF).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

from scheduling.capacity.cluster_view import RoundView
from scheduling.capacity.node_capacity import Demand, Ints, NodeCapacity
from scheduling.domain import WHOLE, Allocation, Job, Snapshot
from scheduling.policies.capabilities import Answer, Capabilities
from scheduling.policies.packing.base import PackingPolicy


class SjfExclusive(PackingPolicy):
    name: ClassVar[str] = "sjf_exclusive"
    title: ClassVar[str] = "Shortest job first, exclusive"
    #: Fractional jobs hold whole GPUs.
    capabilities = Capabilities(Answer.PLACEMENTS, places_gpu_parts=True, exclusive_gpus=True)

    def allocate(self, snapshot: Snapshot) -> Allocation:
        jobs = tuple(replace(job, gpu_milli=WHOLE) if job.gpu_milli < WHOLE else job for job in snapshot.jobs)
        return super().allocate(replace(snapshot, jobs=jobs))

    def order(self, field: RoundView, queue: Sequence[Job]) -> Sequence[Job]:
        return sorted(queue, key=lambda job: (-job.priority, seconds_left(field, job)))

    def choose(self, node_capacity: NodeCapacity, demand: Demand, rows: Ints, memory: Any) -> tuple[int, ...]:
        return node_capacity.tightest(int(rows[0]), demand)


def seconds_left(field: RoundView, job: Job) -> float:
    """Remaining time on the least gang of the fastest type; infinite if no type can run it."""
    speeds = [span.at(span.low) for span in field.spans(job).values()]
    return min((job.remaining_steps / speed for speed in speeds if speed > 0), default=math.inf)
