"""What has been worked out before, found again by the identity of what it was worked out from.

Rounds see the same curves and the same nodes again and again. Entries hold what they were made from, so that an
identity means the same object while it is here.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from scheduling.domain import Curve, Job, Node

T = TypeVar("T")


class ByCurves(Generic[T]):
    """By a job's curves and the gangs that it allows."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._entries: dict[Hashable, tuple[Mapping[str, Curve], T]] = {}

    def get(self, job: Job, shape: Hashable, make: Callable[[Job], T]) -> T:
        """`shape`: all else that the value depends on."""
        curves = job.curves
        key = (id(curves), job.min_gpus, job.max_gpus, job.types, shape)
        entry = self._entries.get(key)
        if entry is not None and entry[0] is curves:
            return entry[1]
        if len(self._entries) >= self._most:
            self._entries.clear()
        value = make(job)
        self._entries[key] = curves, value
        return value


@dataclass(frozen=True, slots=True)
class Fleet:
    """Nodes, counted. All but `every_type` are of those that may be scheduled."""

    types: tuple[str, ...]
    total: Mapping[str, int]  # GPUs
    largest: Mapping[str, int]  # GPUs of the largest node
    type_of: Mapping[int, str]
    every_type: Mapping[int, str]


class _Fleets:
    """The newest few."""

    most = 8
    entries: dict[int, tuple[tuple[Node, ...], Fleet]] = {}


def fleet(nodes: tuple[Node, ...]) -> Fleet:
    entry = _Fleets.entries.get(id(nodes))
    if entry is not None and entry[0] is nodes:
        return entry[1]
    if len(_Fleets.entries) >= _Fleets.most:
        del _Fleets.entries[next(iter(_Fleets.entries))]
    found = _count(nodes)
    _Fleets.entries[id(nodes)] = nodes, found
    return found


def _count(nodes: tuple[Node, ...]) -> Fleet:
    total, largest = dict[str, int](), dict[str, int]()
    type_of, every = dict[int, str](), dict[int, str]()
    for node in nodes:
        own = dict.fromkeys(node.gpu_ids, node.type)
        every.update(own)
        if node.schedulable and not node.lost and own:
            type_of.update(own)
            total[node.type] = total.get(node.type, 0) + len(own)
            largest[node.type] = max(largest.get(node.type, 0), len(own))
    return Fleet(tuple(sorted(total)), total, largest, type_of, every)
