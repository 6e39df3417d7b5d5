"""Fragmentation gradient descent: each job goes where it increases fragmentation least.

Objective: minimise the growth of fragmentation (`_fragments`) over all nodes and devices that fit. The expected classes
of jobs are those seen so far; older ones count less. Source: Weng et al. (ATC 2023), section 4.1.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from pydantic import Field

from scheduling.capacity.cluster_view import RoundView
from scheduling.capacity.node_capacity import Demand, Ints, NodeCapacity
from scheduling.domain import WHOLE, Job, Snapshot, plain_type
from scheduling.policies.base import Parameters as BaseParameters
from scheduling.policies.packing.base import PackingPolicy, demands_of, remembered
from scheduling.policies.packing.base import Parameters as PackingParameters
from scheduling.policies.packing.fragmentation import Classes, Floats

#: A class with a smaller weight is forgotten.
_LEAST = 0.05
#: Only the most common classes are remembered.
_MOST_KEPT = 256


class Parameters(PackingParameters):
    memory_jobs: int = Field(
        default=2_000, ge=10, le=1_000_000, description="After so many jobs one that came counts half."
    )


class Gradient:
    """By demand: how much each node's fragmentation would grow, recomputed only after bookings."""

    def __init__(self, node_capacity: NodeCapacity, classes: Classes) -> None:
        self.node_capacity, self.classes = node_capacity, classes
        self.before = classes.fragments(node_capacity.kind, node_capacity.cpu, node_capacity.memory, node_capacity.gpu)
        self._fresh = len(node_capacity.booked)
        self._known: dict[Demand, tuple[int, Floats, Ints]] = {}

    def of(self, demand: Demand) -> tuple[Floats, Ints]:
        """(growth by node, infinite if the demand does not fit; the device for a GPU share)."""
        node_capacity, until = self.node_capacity, len(self.node_capacity.booked)
        changed = np.unique(np.array(node_capacity.booked[self._fresh : until], dtype=np.int64))
        if len(changed):
            state = (
                node_capacity.kind[changed],
                node_capacity.cpu[changed],
                node_capacity.memory[changed],
                node_capacity.gpu[changed],
            )
            self.before[changed] = self.classes.fragments(*state)
            self._fresh = until
        known = self._known.get(demand)
        if known is None:
            growth, column = (
                np.full(len(node_capacity.nodes), np.inf),
                np.zeros(len(node_capacity.nodes), dtype=np.int64),
            )
            stale = np.arange(len(node_capacity.nodes))
        else:
            since, growth, column = known
            stale = np.unique(np.array(node_capacity.booked[since:until], dtype=np.int64))
            growth[stale] = np.inf
        self._known[demand] = until, growth, column
        rows = np.intersect1d(stale, node_capacity.fitting(demand))
        if len(rows):
            (self._whole if demand.milli == WHOLE else self._part)(demand, rows, growth, column)
        return growth, column

    def _whole(self, demand: Demand, rows: Ints, growth: Floats, column: Ints) -> None:
        gpu, fits = self.node_capacity.gpu[rows].copy(), self.node_capacity.devices(demand)[rows]
        gpu[fits & (np.cumsum(fits, axis=1) <= demand.count)] = 0
        growth[rows] = self._growth(demand, rows, gpu)

    def _part(self, demand: Demand, rows: Ints, growth: Floats, column: Ints) -> None:
        """One state for each device that fits; of devices with equal free capacity on a node only the first."""
        where, device = np.nonzero(self.node_capacity.devices(demand)[rows])
        _, first = np.unique(np.stack((where, self.node_capacity.gpu[rows[where], device])), axis=1, return_index=True)
        where, device = where[first], device[first]
        gpu = self.node_capacity.gpu[rows[where]].copy()
        every = np.arange(len(where))
        gpu[every, device] -= demand.milli
        grown = self._growth(demand, rows[where], gpu)
        order = np.lexsort((gpu[every, device], np.round(grown, 6), where))
        best = order[np.unique(where[order], return_index=True)[1]]
        growth[rows[where[best]]], column[rows[where[best]]] = grown[best], device[best]

    def _growth(self, demand: Demand, rows: Ints, gpu: Ints) -> Floats:
        node_capacity = self.node_capacity
        after = (
            node_capacity.kind[rows],
            node_capacity.cpu[rows] - demand.cpu,
            node_capacity.memory[rows] - demand.memory,
            gpu,
        )
        return np.asarray(self.classes.fragments(*after) - self.before[rows])


@dataclass
class Seen:
    """How often each class arrived, the newest with weight 1."""

    times: dict[Demand, float]
    latest: tuple[float, int]  # submission and number of the newest job counted
    gradient: Gradient


class Fgd(PackingPolicy):
    name: ClassVar[str] = "fgd"
    title: ClassVar[str] = "Fragmentation gradient descent"
    Parameters: ClassVar[type[BaseParameters]] = Parameters

    def begin(self, snapshot: Snapshot, field: RoundView, node_capacity: NodeCapacity) -> Seen:
        kept = remembered(snapshot)
        times = {Demand(key[0], key[1], key[2], key[3], key[4], tuple(key[5])): n for key, n in kept.get("classes", [])}
        at, number = kept.get("latest", (-math.inf, 0))
        new = sorted(
            ((job.submitted_at, job.number), demand)
            for job in snapshot.jobs
            if (job.submitted_at, job.number) > (at, number) and (demand := class_of(field, job)) is not None
        )
        fading = 0.5 ** (len(new) / self.parameters.memory_jobs)
        times = {demand: count * fading for demand, count in times.items() if count * fading >= _LEAST}
        for _, demand in new:
            times[demand] = times.get(demand, 0.0) + 1.0
        latest = max([(at, number), *(key for key, _ in new)])
        return Seen(times, latest, Gradient(node_capacity, Classes.of(times, node_capacity.types)))

    def end(self, memory: Seen) -> dict[str, Any]:
        if not memory.times:
            return {}
        classes = [
            [[d.count, d.milli, d.gpu_memory, d.cpu, d.memory, list(d.types)], count]
            for d, count in Counter(memory.times).most_common(_MOST_KEPT)
        ]
        return {"classes": classes, "latest": list(memory.latest)}

    def choose(self, node_capacity: NodeCapacity, demand: Demand, rows: Ints, memory: Seen) -> tuple[int, ...]:
        """Of nodes with equal cost, the fullest one."""
        growth, column = memory.gradient.of(demand)
        least = np.flatnonzero(growth <= growth.min() + 1e-6)
        row = int(least[np.argmin(node_capacity.gpu[least].sum(axis=1))])
        if demand.milli == WHOLE:
            return node_capacity.first(row, demand)
        return (node_capacity.nodes[row].gpu_ids[int(column[row])],)


def class_of(field: RoundView, job: Job) -> Demand | None:
    """The least gang with plain type names, as node pools change. None: no type can run it."""
    demands = demands_of(field, job)
    if not demands:
        return None
    types = tuple(sorted({plain_type(kind) for kind in demands[0].types}))
    return replace(demands[0], types=types, excluded=())
