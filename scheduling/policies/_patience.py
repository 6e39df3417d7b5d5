"""For whom GPUs are kept where a policy passes over those that fit: nobody waits for ever."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from scheduling.domain import WHOLE, Job, Node
from scheduling.policies._yard import Demand, Yard


@dataclass(frozen=True, slots=True, eq=False)
class Waiting:
    job: Job
    demand: Demand

    @property
    def is_part(self) -> bool:
        return is_part(self.demand)

    def waited_s(self, now: float) -> float:
        """Since it could have run."""
        return now - (self.job.submitted_at if self.job.eligible_at is None else self.job.eligible_at)


@dataclass(frozen=True, slots=True, eq=False)
class Kept:
    """GPUs of one node that nobody else gets; infinite `empty_in_s`: somebody runs there for who knows how long."""

    one: Waiting
    gpus: tuple[int, ...]
    empty_in_s: float


def keep_for_the_overdue(
    queue: Iterable[Waiting], yard: Yard, now: float, patience_s: float, left_s: Callable[[int], float]
) -> Kept | None:
    """For the first of the queue that has waited for longer than `patience_s` and fits some node when that is empty:
    there where its GPUs will be empty soonest. `left_s`: for how long a GPU is used by who is there, 0 if nobody is."""
    for one in queue:
        if one.waited_s(now) > patience_s:
            found = _soonest(yard, one.demand, left_s)
            if found is not None:
                return Kept(one, found[1], found[0])
    return None


def _soonest(yard: Yard, demand: Demand, left_s: Callable[[int], float]) -> tuple[float, tuple[int, ...]] | None:
    best: tuple[float, tuple[int, ...]] | None = None
    for row in np.flatnonzero(yard.allowed(demand)).tolist():
        node = yard.nodes[row]
        gpus = [gpu for gpu in node.gpu_ids if gpu not in demand.excluded]
        if len(gpus) < demand.count or not _fits_when_empty(node, demand):
            continue
        soonest = sorted((left_s(gpu), number) for number, gpu in enumerate(gpus))[: demand.count]
        if best is None or soonest[-1][0] < best[0]:
            best = soonest[-1][0], tuple(sorted(gpus[number] for _, number in soonest))
    return best


def _fits_when_empty(node: Node, demand: Demand) -> bool:
    asked = ((node.gpu_memory_mib, demand.gpu_memory), (node.cpu_milli, demand.cpu), (node.memory_mib, demand.memory))
    return all(there is None or wanted <= there for there, wanted in asked)


def is_part(demand: Demand) -> bool:
    return demand.milli < WHOLE and demand.count == 1
