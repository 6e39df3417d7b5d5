"""Nodes as packing policies see them: free devices, CPUs and memory, in arrays.

Rows are schedulable nodes, in the snapshot's order; columns of `gpu` their accelerators in index order. An unknown
capacity is UNBOUNDED. A demand fits a node if the node's CPUs, memory and enough single devices suffice: four quarters
on four devices are no whole one (spec: genetic-packing, "Problem").
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scheduling.capacity.memo import ClusterIndex, Newest, cluster_index
from scheduling.domain import WHOLE, Job, Node, Snapshot

Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]
UNBOUNDED = 1 << 40


@dataclass(frozen=True, slots=True)
class Demand:
    """What a job requests: `count` devices, `milli` and `gpu_memory` of each, and `cpu` and `memory` of each node."""

    count: int
    milli: int
    gpu_memory: int
    cpu: int
    memory: int
    types: tuple[str, ...]  # empty: any
    excluded: tuple[int, ...] = ()  # devices that it may not get

    @classmethod
    def of(cls, job: Job) -> Demand:
        """The job's request, whatever it holds now; equal for all jobs of a kind."""
        types = tuple(sorted(job.types or job.curves))
        return cls(job.min_gpus, job.gpu_milli, job.gpu_memory_mib, job.cpu_milli, job.memory_mib, types)

    @property
    def total(self) -> Ints:
        """(CPUs, memory, thousandths of GPUs), as `NodeCapacity.free`."""
        return np.array([self.cpu, self.memory, self.count * self.milli])


class NodeCapacity:
    """Free capacity of nodes; `book` takes from it."""

    def __init__(self, snapshot: Snapshot, holding: Iterable[Job]) -> None:
        """`holding`: jobs that keep their GPUs. GPUs that exiting processes occupy are not free."""
        ground = _grounds.of(cluster_index(snapshot.nodes))
        self.nodes, self.types, self.kind, self.size = ground.nodes, ground.types, ground.kind, ground.size
        self.capacity, self.place, self.of_each = ground.capacity, ground.place, ground.of_each
        self.multi_node = snapshot.multi_node
        self.cpu, self.memory = ground.capacity[:, 0].copy(), ground.capacity[:, 1].copy()
        self.gpu, self.gpu_memory = ground.gpu.copy(), ground.gpu_memory.copy()
        self.booked: list[int] = []  # rows in the order of booking
        for row, taken_cpu, taken_memory in ground.shared:
            self.cpu[row] -= taken_cpu
            self.memory[row] -= taken_memory
        self._book_all(holding)
        for gpu in snapshot.blocked_gpu_ids:
            if gpu in self.place:
                self.gpu[self.place[gpu]] = 0

    def _book_all(self, holding: Iterable[Job]) -> None:
        taken: list[tuple[int, int, int, int, int, int]] = []
        for job in holding:
            taken += self._takes(job.gpu_ids, job.gpu_milli, job.gpu_memory_mib, job.cpu_milli, job.memory_mib)
        if taken:
            row, column, milli, gpu_memory, cpu, memory = np.array(taken, dtype=np.int64).T
            np.subtract.at(self.gpu, (row, column), milli)
            np.subtract.at(self.gpu_memory, (row, column), gpu_memory)
            np.subtract.at(self.cpu, row, cpu)
            np.subtract.at(self.memory, row, memory)

    def _takes(
        self, gpus: Sequence[int], milli: int, gpu_memory: int, cpu: int, memory: int
    ) -> Iterator[tuple[int, int, int, int, int, int]]:
        """(row, column, thousandths and memory of the device, CPUs, memory), the last two once for each node."""
        places = [self.place[gpu] for gpu in gpus if gpu in self.place]
        rows = [row for row, _ in places]
        for number, (row, column) in enumerate(places):
            first = rows.index(row) == number
            yield row, column, milli, gpu_memory, cpu if first else 0, memory if first else 0

    def copy(self) -> NodeCapacity:
        """Bookings in the copy do not change the original."""
        other = copy(self)
        other.gpu, other.gpu_memory = self.gpu.copy(), self.gpu_memory.copy()
        other.cpu, other.memory, other.booked = self.cpu.copy(), self.memory.copy(), []
        return other

    def book(self, demand: Demand, gpus: Sequence[int]) -> None:
        """Take the demand from these devices."""
        every = self._takes(gpus, demand.milli, demand.gpu_memory, demand.cpu, demand.memory)
        for row, column, milli, gpu_memory, cpu, memory in every:
            self.booked.append(row)
            self.gpu[row, column] -= milli
            self.gpu_memory[row, column] -= gpu_memory
            self.cpu[row] -= cpu
            self.memory[row] -= memory

    def keep(self, demand: Demand, gpus: Sequence[int]) -> None:
        """Reserve these devices of one node completely, and the demand's CPUs and memory as far as they are free."""
        for gpu in gpus:
            self.gpu[self.place[gpu]] = 0
        row, _ = self.place[gpus[0]]
        self.cpu[row] -= min(demand.cpu, max(int(self.cpu[row]), 0))
        self.memory[row] -= min(demand.memory, max(int(self.memory[row]), 0))

    def free(self, rows: Ints) -> Ints:
        """[row, (CPUs, memory, thousandths of GPUs)]."""
        return np.stack((self.cpu[rows], self.memory[rows], self.gpu[rows].sum(axis=1)), axis=1)

    def ground_memory(self, rows: Ints) -> NDArray[np.float64]:
        """MiB of each of the nodes' devices when empty; infinite if unknown."""
        of_each = self.of_each[rows]
        return np.where(of_each >= UNBOUNDED, np.inf, of_each).astype(float)

    def devices(self, demand: Demand) -> Mask:
        """[node, device]: whether one device has enough."""
        enough = np.asarray((self.gpu >= demand.milli) & (self.gpu_memory >= demand.gpu_memory))
        for gpu in demand.excluded:
            if gpu in self.place:
                enough[self.place[gpu]] = False
        return enough

    def fitting(self, demand: Demand) -> Ints:
        """Rows of the nodes on which the demand fits now."""
        enough = self.devices(demand).sum(axis=1) >= demand.count
        enough &= (self.cpu >= demand.cpu) & (self.memory >= demand.memory)
        return np.flatnonzero(enough & self.allowed(demand))

    def holds_when_empty(self, demand: Demand) -> Mask:
        """By node: whether it is large enough, ignoring its type and number of devices."""
        cpu, memory = (self.capacity[:, n] for n in (0, 1))
        return np.asarray((cpu >= demand.cpu) & (memory >= demand.memory) & (self.of_each >= demand.gpu_memory))

    def has_room(self, demand: Demand, gpus: Sequence[int]) -> bool:
        """Whether these devices have room; CPUs and memory are not checked."""
        devices = self.devices(demand)
        return all(devices[self.place[gpu]] for gpu in gpus)

    def allowed(self, demand: Demand) -> Mask:
        """By node: whether its type may be used."""
        if not demand.types:
            return np.ones(len(self.nodes), dtype=bool)
        kinds = [n for n, kind in enumerate(self.types) if kind in demand.types]
        return np.isin(self.kind, kinds)

    def across(self, demand: Demand) -> tuple[int, ...] | None:
        """Ids of devices on as few nodes of one type as possible. None if one empty node would be large enough, if
        there is no room, or if gangs may not span nodes."""
        if not self.multi_node:
            return None
        allowed = self.allowed(demand) & self.holds_when_empty(demand)
        if self.size[allowed].max(initial=0) >= demand.count:
            return None
        devices = self.devices(demand)
        enough = allowed & (self.cpu >= demand.cpu) & (self.memory >= demand.memory)
        room = np.where(enough, devices.sum(axis=1), 0)
        for kind in range(len(self.types)):
            rows = np.flatnonzero((self.kind == kind) & (room > 0))
            if room[rows].sum() >= demand.count:
                rows = rows[np.argsort(-room[rows], kind="stable")]
                return self._of_each(rows, room, devices)[: demand.count]
        return None

    def _of_each(self, rows: Ints, room: Ints, devices: Mask) -> tuple[int, ...]:
        """Ids of the first `room` devices of each row that suffice."""
        found: list[int] = []
        for row in rows.tolist():
            columns = np.flatnonzero(devices[row])[: room[row]].tolist()
            found += [self.nodes[row].gpu_ids[column] for column in columns]
        return tuple(found)

    def tightest(self, row: int, demand: Demand) -> tuple[int, ...]:
        """Ids of devices of the node: the fullest ones that suffice, the first among equals."""
        fits = np.flatnonzero(self.devices(demand)[row])
        chosen = fits[np.argsort(self.gpu[row, fits], kind="stable")][: demand.count]
        return tuple(sorted(self.nodes[row].gpu_ids[column] for column in chosen.tolist()))

    def first(self, row: int, demand: Demand) -> tuple[int, ...]:
        """Ids of the first devices of the node that suffice."""
        fits = np.flatnonzero(self.devices(demand)[row])[: demand.count]
        return tuple(self.nodes[row].gpu_ids[column] for column in fits.tolist())


@dataclass(frozen=True, slots=True)
class _Ground:
    """Nodes without any jobs."""

    nodes: Sequence[Node]
    types: tuple[str, ...]
    kind: Ints
    size: Ints  # GPUs
    capacity: Ints  # [node, (CPUs, memory, thousandths of GPUs)]
    gpu: Ints
    gpu_memory: Ints
    of_each: Ints  # memory of each of a node's devices
    place: Mapping[int, tuple[int, int]]  # GPU -> row, column
    shared: Sequence[tuple[int, int, int]]  # row, CPUs and memory of jobs outside the portal


def _survey(known: ClusterIndex) -> _Ground:
    nodes = known.usable
    number = {kind: n for n, kind in enumerate(known.types)}
    size = np.array([len(node.gpu_ids) for node in nodes], dtype=np.int64)
    columns = np.arange(size.max(initial=0))
    there = columns < size[:, None]
    of_each = np.array([_known(node.gpu_memory_mib) for node in nodes], dtype=np.int64)
    cpu, memory = [_known(node.cpu_milli) for node in nodes], [_known(node.memory_mib) for node in nodes]
    return _Ground(
        nodes=nodes,
        types=known.types,
        kind=np.array([number[node.type] for node in nodes], dtype=np.int64),
        size=size,
        capacity=np.stack((np.array(cpu, dtype=np.int64), np.array(memory, dtype=np.int64), size * WHOLE), axis=1),
        gpu=np.where(there, WHOLE, 0),
        gpu_memory=np.where(there, of_each[:, None], 0),
        of_each=of_each,
        place={gpu: (row, column) for row, node in enumerate(nodes) for column, gpu in enumerate(node.gpu_ids)},
        shared=[
            (row, sum(one.cpu_milli for one in node.others), sum(one.memory_mib for one in node.others))
            for row, node in enumerate(nodes)
            if node.others
        ],
    )


#: Most rounds see the nodes of the previous round.
_grounds = Newest(_survey)


def _known(value: int | None) -> int:
    return UNBOUNDED if value is None else value
