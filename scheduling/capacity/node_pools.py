"""Which nodes each job may use: those of its partition that meet its constraint, and none with a window that it would
run into.

Nodes of one accelerator type that are in the same partitions and windows and meet the same constraints form a pool.
Windows that begin after the end of all jobs that could use their nodes do not count. Policies see each pool as a
separate type, and a job has curves only for the pools that it may use. So the capacities are right for every policy,
and no policy needs to know about pools. Without partitions, windows and constraints nothing is done.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from scheduling.domain import POOL_MARK, Curve, Gang, Job, Node, Snapshot, Window

V = TypeVar("V")
#: Least time assumed for a launch, a checkpoint and a stop together.
OVERHEAD_S = 30.0
#: A type that no node has.
_NOWHERE = POOL_MARK * 2


@dataclass(frozen=True, slots=True)
class Pool:
    """Nodes of one type that are equivalent for every job."""

    name: str
    type: str
    partitions: frozenset[str]
    windows: tuple[Window, ...]
    constraints: frozenset[str] = frozenset()  # constraints that its nodes meet

    def is_for(self, job: Job) -> bool:
        """Whether the pool matches the job's partition and constraint."""
        return self.is_in(job.partition) and (not job.constraint or job.constraint in self.constraints)

    def is_in(self, partition: str) -> bool:
        return partition in self.partitions if partition else not self.partitions

    def is_maintained(self, now: float) -> bool:
        return any(window.start <= now and window.kind == "maintenance" for window in self.windows)

    def barred_by(self, job: Job, now: float) -> Window | None:
        """The first active window that excludes the job, or that it would run into if it started now."""
        others = [window for window in self.windows if not window.admits(job)]
        if not others:
            return None
        end = latest_end(job, self.type, now)
        return next((window for window in others if window.start <= now or window.start < end), None)

    def closed_to(self, job: Job, now: float) -> Window | None:
        """An active window that excludes the job."""
        return next((w for w in self.windows if w.start <= now and not w.admits(job)), None)


def latest_end(job: Job, kind: str, now: float) -> float:
    """When training would end at the latest on any gang of a type that the job may get; infinite if unknown.

    The earlier of two: its steps at the speed of its least gang, spread over nodes, and its time limit.
    """
    steps_s = math.inf
    curve = job.curves.get(kind)
    if curve is not None and curve.source != "trial" and job.remaining_steps > 0:
        speed = _slowest(curve, job.min_gpus)
        steps_s = job.remaining_steps / speed if speed > 0 else math.inf
    limit_s = math.inf if job.time_limit_s is None else job.time_limit_s
    overhead_s = max(OVERHEAD_S, job.restart_cost_s, job.launch_s + job.checkpoint_s)
    return now + overhead_s + min(steps_s, limit_s)


def _slowest(curve: Curve, least: int) -> float:
    speeds = (value for value in curve.steps_per_s[max(0, least - 1) :] if value > 0)
    speed = next(speeds, curve.at(least))
    return speed * min((curve.spread_factor, *curve.spread_factors))


@dataclass
class Pools:
    """The pools of a snapshot, and which jobs may use them."""

    snapshot: Snapshot
    every: list[Pool] = field(default_factory=list)
    of_node: dict[str, Pool] = field(default_factory=dict)
    of_gpu: dict[int, Pool] = field(default_factory=dict)
    size: dict[Pool, int] = field(default_factory=dict)  # GPUs on nodes that are not lost
    closed_gpus: set[int] = field(default_factory=set)  # on nodes that are lost, drained or maintained

    def __post_init__(self) -> None:
        known: dict[tuple[str, tuple[str, ...], tuple[str, ...], tuple[str, ...]], Pool] = {}
        met = _by_node({name: self.snapshot.constraints[name] for name in sorted(self.snapshot.constraints)})
        parts = _by_node({name: self.snapshot.partitions[name].nodes for name in sorted(self.snapshot.partitions)})
        spans = {window.id: window for window in sorted(_reached(self.snapshot, parts), key=lambda w: (w.start, w.id))}
        windows_of = _by_node({key: window.nodes for key, window in spans.items()})
        for node in self.snapshot.nodes:
            names, ids = tuple(parts.get(node.name, ())), tuple(windows_of.get(node.name, ()))
            asks = tuple(met.get(node.name, ()))
            key = (node.type, names, ids, asks)
            pool = known.get(key)
            if pool is None:
                rest = f"/{','.join(asks)}" if asks else ""
                name = f"{node.type}{POOL_MARK}{','.join(names)}/{','.join(ids)}{rest}{POOL_MARK}"
                ahead = tuple(spans[one] for one in ids)
                pool = known[key] = Pool(name, node.type, frozenset(names), ahead, frozenset(asks))
                self.every.append(pool)
            self.of_node[node.name] = pool
            self.of_gpu |= dict.fromkeys(node.gpu_ids, pool)
            if not node.schedulable or node.lost or pool.is_maintained(self.snapshot.now):
                self.closed_gpus.update(node.gpu_ids)
            self.size[pool] = self.size.get(pool, 0) + (0 if node.lost else len(node.gpu_ids))
        self._usable: dict[tuple[str, tuple[str, ...], str], list[Pool]] = {}

    def usable(self, job: Job) -> list[Pool]:
        """Pools of the job's partition and types, ignoring windows."""
        key = (job.partition, job.types, job.constraint)
        found = self._usable.get(key)
        if found is None:
            mine = [pool for pool in self.every if pool.is_for(job)]
            found = self._usable[key] = [pool for pool in mine if not job.types or pool.type in job.types]
        return found

    def open_to(self, job: Job) -> list[Pool]:
        """Pools in which the job may start now."""
        return [pool for pool in self.usable(job) if pool.barred_by(job, self.snapshot.now) is None]

    def held(self, job: Job) -> set[Pool]:
        return {self.of_gpu[gpu] for gpu in job.gpu_ids if gpu in self.of_gpu}

    def sends_away(self, job: Job) -> bool:
        """The job holds GPUs on nodes that it must leave."""
        closed = not self.closed_gpus.isdisjoint(job.gpu_ids)
        return closed or any(pool.closed_to(job, self.snapshot.now) for pool in self.held(job))

    def stays_in(self, job: Job) -> Pool | None:
        """The pool in which a running job may continue and be resized: the only one that holds all its GPUs, whatever
        windows are ahead."""
        held = self.held(job)
        if len(held) != 1:
            return None
        (pool,) = held
        fits = pool in self.usable(job) and pool.closed_to(job, self.snapshot.now) is None
        return pool if fits else None


class _Jobs:
    """Jobs as policies see them."""

    def __init__(self, pools: Pools) -> None:
        self.pools = pools
        self._curves: dict[tuple[int, tuple[str, ...]], dict[str, Curve]] = {}

    def as_seen(self, job: Job) -> Job:
        mine = [pool for pool in self.pools.open_to(job) if not job.curves or pool.type in job.curves]
        own = self.pools.of_gpu.get(job.gpu_ids[0]) if job.gpu_ids else None
        gang = job.gang if job.gang is None or own is None else Gang(own.name, job.gang.count)
        if not job.gpu_ids or self.pools.sends_away(job):  # may start, here or elsewhere
            return replace(job, curves=self._of(job, mine), types=_names(mine), gang=gang)
        stays = self.pools.stays_in(job) is not None
        known = mine if own is None or own in mine else [*mine, own]
        allowed = known if stays else mine  # where it may get GPUs once all of its GPUs were taken
        return replace(
            job, curves=self._of(job, known), types=_names(allowed), gang=gang, resizable=stays and job.resizable
        )

    def _of(self, job: Job, pools: Sequence[Pool]) -> dict[str, Curve]:
        """Jobs that share their curves share one mapping, since memos compare by identity."""
        key = id(job.curves), tuple(pool.name for pool in pools)
        found = self._curves.get(key)
        if found is None:
            found = {pool.name: job.curves[pool.type] for pool in pools if pool.type in job.curves}
            if job.curves and not found:
                found = {_NOWHERE: Curve(())}  # an empty mapping would mean that all throughputs are unknown
            self._curves[key] = found
        return found


def _names(pools: Sequence[Pool]) -> tuple[str, ...]:
    """The pools as a job's types; an empty tuple would mean any type."""
    return tuple(pool.name for pool in pools) or (_NOWHERE,)


@dataclass(frozen=True, slots=True)
class Divided:
    """What policies see, and the pools behind it (None: nothing is divided)."""

    snapshot: Snapshot
    pools: Pools | None = None


def divide(snapshot: Snapshot) -> Divided:
    if not snapshot.partitions and not snapshot.windows and not snapshot.constraints:
        return Divided(snapshot)
    pools = Pools(snapshot)
    of_type: dict[str, list[str]] = {}
    for pool in pools.every:
        of_type.setdefault(pool.type, []).append(pool.name)
    seen = _Jobs(pools)
    divided = replace(
        snapshot,
        nodes=tuple(_as_seen(node, pools.of_node[node.name], snapshot.now) for node in snapshot.nodes),
        jobs=tuple(seen.as_seen(job) for job in snapshot.jobs),
        prices=_by_pool(snapshot.prices, of_type),
        pairs={key: _by_pool(both, of_type) for key, both in snapshot.pairs.items()},
    )
    return Divided(divided, pools)


def _as_seen(node: Node, pool: Pool, now: float) -> Node:
    """With its pool as type, and closed during maintenance."""
    return replace(node, type=pool.name, schedulable=node.schedulable and not pool.is_maintained(now))


def _reached(snapshot: Snapshot, parts: Mapping[str, Sequence[str]]) -> list[Window]:
    """Active windows, and those that some excluded job may run into on nodes that it may use."""
    late = [window for window in snapshot.windows if window.start > snapshot.now]
    found = [window for window in snapshot.windows if window.start <= snapshot.now]
    if not late:
        return found
    places = {node.name: {(part, node.type) for part in parts.get(node.name, ("",))} for node in snapshot.nodes}
    ends = _latest_ends(snapshot)
    for window in late:
        mine = set[tuple[str, str]]().union(*(places.get(name, ()) for name in window.nodes))
        if any(_reaches(window, ends.get(place, ())) for place in mine):
            found.append(window)
    return found


def _latest_ends(snapshot: Snapshot) -> dict[tuple[str, str], list[tuple[float, Job]]]:
    """The latest end of any job that may use nodes of a partition and type."""
    types = {node.type for node in snapshot.nodes}
    found: dict[tuple[str, str], list[tuple[float, Job]]] = {}
    for job in snapshot.jobs:
        for kind in types.intersection(job.types or types):
            if not job.curves or kind in job.curves:
                found.setdefault((job.partition, kind), []).append((latest_end(job, kind, snapshot.now), job))
    for ends in found.values():
        ends.sort(key=lambda one: -one[0])
    return found


def _reaches(window: Window, ends: Sequence[tuple[float, Job]]) -> bool:
    for end, job in ends:
        if end <= window.start:
            return False
        if not window.admits(job):
            return True
    return False


def _by_node(sets: Mapping[str, frozenset[str]]) -> dict[str, list[str]]:
    """{node: keys of the sets that contain it}, in the order of the sets."""
    found: dict[str, list[str]] = {}
    for key, nodes in sets.items():
        for node in nodes:
            found.setdefault(node, []).append(key)
    return found


def _by_pool(values: Mapping[str, V], of_type: Mapping[str, list[str]]) -> dict[str, V]:
    return {name: value for kind, value in values.items() for name in of_type.get(kind, ())}
