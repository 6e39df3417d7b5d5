"""What has been worked out before, found again by the identity of what it was worked out from.

Rounds see the same curves and the same nodes again and again. Entries hold what they were made from, so that an
identity means the same object while it is here.
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
    """By a job's curves and the gangs that it allows; first by the job itself, as many rounds are shown the same."""

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
    """One value that the next round starts from. Threads may replace it at any time, as one."""

    def __init__(self, value: T) -> None:
        self.value = value


class Newest(Generic[K, T]):
    """The answer for the newest key, by its identity: within a round the policy and the round itself look at one
    snapshot. Threads may replace it at any time, so it is read and written as one."""

    def __init__(self, make: Callable[[K], T]) -> None:
        self._make = make
        self._latest: tuple[K, T] | None = None

    def of(self, key: K) -> T:
        latest = self._latest
        if latest is None or latest[0] is not key:
            latest = self._latest = key, self._make(key)
        return latest[1]


class ShapeCache(Generic[T]):
    """The same for each of a few shapes: all else that values depend on."""

    def __init__(self, most: int, shapes: int = 8) -> None:
        self._known: Callable[[Hashable], CurveCache[T]] = lru_cache(shapes)(lambda _: CurveCache(most))

    def of(self, shape: Hashable) -> CurveCache[T]:
        return self._known(shape)


class Seen:
    """Jobs of which something was found that holds while rounds are shown the same object."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.jobs: dict[str, Job] = {}  # for loops in which a call a job would be the most of the work

    def add(self, job: Job) -> None:
        if len(self.jobs) >= self._most:
            self.jobs.clear()
        self.jobs[job.id] = job


@dataclass(frozen=True, slots=True)
class ClusterIndex:
    """Nodes, counted. All but `every_type` and `present` is of those that may be scheduled."""

    types: tuple[str, ...]
    total: Mapping[str, int]  # GPUs
    largest: Mapping[str, int]  # GPUs of the largest node
    type_of: Mapping[int, str]
    every_type: Mapping[int, str]
    present: Mapping[str, int]  # GPUs that are not lost, drained ones among them; of plain types
    usable: tuple[Node, ...]
    node_of: Mapping[int, int]  # GPU -> place of its node among these
    seated: Seen = field(default_factory=lambda: Seen(16_384), compare=False, repr=False)  # holds no GPU but of these


#: Clusters larger than this are remembered one by one, so that what the portal reads anew each time is soon forgotten;
#: excerpts are small, and many.
_LARGE = 64


def cluster_index(nodes: tuple[Node, ...]) -> ClusterIndex:
    return (_of_cluster if len(nodes) > _LARGE else _of_excerpt)(_Same(nodes))


class _Same:
    """Nodes by identity."""

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
