"""Results memoised by the identity of their inputs.

Rounds see the same curves and the same nodes again and again. Entries keep their inputs alive, so an identity stands
for the same object as long as the entry exists.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Generic, TypeVar

from scheduling.domain import Curve, Job, Node, plain_type

K = TypeVar("K")
T = TypeVar("T")


class CurveCache(Generic[T]):
    """Memo by a job's curves and allowed gangs; first by the job object itself, which most rounds see again."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._entries: dict[Hashable, tuple[Mapping[str, Curve], T]] = {}
        self.jobs: dict[str, tuple[Job, T]] = {}

    def get(self, job: Job, make: Callable[[Job], T]) -> T:
        known = self.jobs.get(job.id)
        if known is not None and known[0] is job:
            return known[1]
        if len(self.jobs) >= self._most:
            self.jobs.clear()
        value = self._by_curves(job, make)
        self.jobs[job.id] = job, value
        return value

    def _by_curves(self, job: Job, make: Callable[[Job], T]) -> T:
        curves = job.curves
        key = (id(curves), job.min_gpus, job.max_gpus, job.types)
        entry = self._entries.get(key)
        if entry is not None and entry[0] is curves:
            return entry[1]
        if len(self._entries) >= self._most:
            self._entries.clear()
        value = make(job)
        self._entries[key] = curves, value
        return value


class Latest(Generic[T]):
    """One value from which the next round starts. Any thread may replace it, atomically."""

    def __init__(self, value: T) -> None:
        self.value = value


class Newest(Generic[K, T]):
    """The result for the newest key, by identity: within a round the policy and the round use one snapshot. Any thread
    may replace it, so key and result are read and written as one."""

    def __init__(self, make: Callable[[K], T]) -> None:
        self._make = make
        self._latest: tuple[K, T] | None = None

    def of(self, key: K) -> T:
        latest = self._latest
        if latest is None or latest[0] is not key:
            latest = self._latest = key, self._make(key)
        return latest[1]


class ShapeCache(Generic[T]):
    """One memo for each of a few shapes, where the shape is everything else that the values depend on."""

    def __init__(self, most: int, shapes: int = 8) -> None:
        self._known: Callable[[Hashable], CurveCache[T]] = lru_cache(shapes)(lambda _: CurveCache(most))

    def of(self, shape: Hashable) -> CurveCache[T]:
        return self._known(shape)


class Seen:
    """Jobs with a property that holds as long as rounds see the same object."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.jobs: dict[str, Job] = {}  # for loops in which one call per job would dominate the run time

    def add(self, job: Job) -> None:
        if len(self.jobs) >= self._most:
            self.jobs.clear()
        self.jobs[job.id] = job


@dataclass(frozen=True, slots=True)
class ClusterIndex:
    """Totals over nodes. Except `every_type` and `present`, they count schedulable nodes only."""

    types: tuple[str, ...]
    total: Mapping[str, int]  # GPUs
    largest: Mapping[str, int]  # GPUs of the largest node
    type_of: Mapping[int, str]
    every_type: Mapping[int, str]
    present: Mapping[str, int]  # GPUs of nodes that are not lost, drained ones included; by plain type
    usable: tuple[Node, ...]
    node_of: Mapping[int, int]  # GPU -> index of its node
    seated: Seen = field(
        default_factory=lambda: Seen(16_384), compare=False, repr=False
    )  # jobs that hold GPUs of these nodes only


#: Larger clusters are kept one at a time, so that those that the portal reads anew each time are soon dropped; small
#: excerpts are kept in large numbers.
_LARGE = 64


def cluster_index(nodes: tuple[Node, ...]) -> ClusterIndex:
    return (_of_cluster if len(nodes) > _LARGE else _of_excerpt)(_Same(nodes))


class _Same:
    """Compares nodes by identity."""

    __slots__ = ("nodes",)

    def __init__(self, nodes: tuple[Node, ...]) -> None:
        self.nodes = nodes

    def __hash__(self) -> int:
        return id(self.nodes)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.nodes is other.nodes


def _counted(same: _Same) -> ClusterIndex:
    return _count(same.nodes)


_of_cluster, _of_excerpt = lru_cache(4)(_counted), lru_cache(256)(_counted)


def _count(nodes: tuple[Node, ...]) -> ClusterIndex:
    usable = tuple([node for node in nodes if node.schedulable and not node.lost and node.gpu_ids])
    total, largest, present = dict[str, int](), dict[str, int](), dict[str, int]()
    for node in nodes:
        if not node.lost:
            kind = plain_type(node.type)
            present[kind] = present.get(kind, 0) + len(node.gpu_ids)
    for node in usable:
        total[node.type] = total.get(node.type, 0) + len(node.gpu_ids)
        largest[node.type] = max(largest.get(node.type, 0), len(node.gpu_ids))
    return ClusterIndex(
        types=tuple(sorted(total)),
        total=total,
        largest=largest,
        type_of={gpu: node.type for node in usable for gpu in node.gpu_ids},
        every_type={gpu: node.type for node in nodes for gpu in node.gpu_ids},
        present=present,
        usable=usable,
        node_of={gpu: place for place, node in enumerate(usable) for gpu in node.gpu_ids},
    )
