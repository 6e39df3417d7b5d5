"""Reserves GPUs for starved jobs where a policy skips jobs that fit, so that no job waits forever."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from scheduling.capacity.node_capacity import Demand, NodeCapacity
from scheduling.capacity.node_pools import latest_end
from scheduling.domain import WHOLE, Job, Node, Snapshot


@dataclass(frozen=True, slots=True, eq=False)
class Waiting:
    """`demand`: of the job's least gang."""

    job: Job
    demand: Demand

    @property
    def is_part(self) -> bool:
        return is_part(self.demand)

    def waited_s(self, now: float) -> float:
        """In total, since it could have run."""
        job = self.job
        return now - (job.submitted_at if job.eligible_at is None else job.eligible_at) - job.ran_s


def is_part(demand: Demand) -> bool:
    return demand.milli < WHOLE and demand.count == 1


@dataclass(frozen=True, slots=True, eq=False)
class Reservation:
    """GPUs of one node that no other job gets, and when they are empty; infinite: their end is unknown."""

    one: Waiting
    gpus: tuple[int, ...]
    empty_in_s: float


class Ends(Protocol):
    """When running jobs will have ended, in seconds from now; infinite if unknown."""

    def left_s(self, gpu: int) -> float:
        """The longest time left of any job on the GPU; 0 if it is empty."""

    def users(self, node: Node) -> Sequence[tuple[float, int, int]]:
        """For each job on the node, the CPUs and memory that it has there."""


def reserve_for_starved(
    queue: Iterable[Waiting], snapshot: Snapshot, node_capacity: NodeCapacity, patience_s: float, ends: Ends
) -> Reservation | None:
    """Reserve for the first queued job that has waited longer than `patience_s` and fits on some empty node, where GPUs
    and enough CPUs and memory will be free soonest."""
    hopeless = set[Demand]()
    for one in queue:
        if one.waited_s(snapshot.now) > patience_s and one.demand not in hopeless:
            kept = _soonest(one, snapshot, node_capacity, ends)
            if kept is not None:
                return kept
            if not snapshot.windows:  # values differ between jobs
                hopeless.add(one.demand)
    return None


def _soonest(one: Waiting, snapshot: Snapshot, node_capacity: NodeCapacity, ends: Ends) -> Reservation | None:
    demand, best = one.demand, None
    for row in np.flatnonzero(node_capacity.allowed(demand) & node_capacity.holds_when_empty(demand)).tolist():
        node = node_capacity.nodes[row]
        gpus = [gpu for gpu in node.gpu_ids if gpu not in demand.excluded]
        if len(gpus) < demand.count:
            continue
        soonest = sorted((ends.left_s(gpu), number) for number, gpu in enumerate(gpus))[: demand.count]
        in_s = max(soonest[-1][0], _enough_in_s(node_capacity, row, demand, ends.users(node)))
        # GPUs that are empty now would be idle for an unknown time.
        unknown = math.isinf(in_s) and soonest[0][0] <= 0.0
        if (best is None or in_s < best.empty_in_s) and not unknown and not _runs_into(one.job, snapshot, node, in_s):
            best = Reservation(one, tuple(sorted(gpus[number] for _, number in soonest)), in_s)
    return best


def _enough_in_s(
    node_capacity: NodeCapacity, row: int, demand: Demand, users: Sequence[tuple[float, int, int]]
) -> float:
    """When the node has enough CPUs and memory."""
    cpu, memory, in_s = int(node_capacity.cpu[row]), int(node_capacity.memory[row]), 0.0
    for left_s, its_cpu, its_memory in sorted(users):
        if cpu >= demand.cpu and memory >= demand.memory:
            break
        cpu, memory, in_s = cpu + its_cpu, memory + its_memory, left_s
    return in_s


def _runs_into(job: Job, snapshot: Snapshot, node: Node, in_s: float) -> bool:
    """Whether a window that excludes the job would prevent its start there."""
    others = [window for window in snapshot.windows if node.name in window.nodes and not window.admits(job)]
    if not others or math.isinf(in_s):
        return bool(others)
    start = snapshot.now + in_s
    end = latest_end(job, node.type, start)
    return any(window.start < end and start < window.end for window in others)
