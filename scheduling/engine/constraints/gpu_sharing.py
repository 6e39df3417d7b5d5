"""Fractional GPUs under policies that assign whole ones.

A running fractional job keeps its GPU share, whatever the policy does with the other GPUs. A pending one that fits on a
GPU that is shared already joins it, before the policy is asked. The remaining ones are bundled, as many as fit on one
GPU. The policy sees the first job of each bundle as a job of one GPU; if that job starts, the rest of the bundle starts
beside it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from scheduling.capacity.cluster_view import RoundView, view
from scheduling.capacity.free_capacity import gpu_memory
from scheduling.capacity.memo import ShapeCache, cluster_index
from scheduling.capacity.node_capacity import UNBOUNDED, Demand, NodeCapacity
from scheduling.capacity.node_pools import latest_end
from scheduling.capacity.quota_headroom import QuotaHeadroom
from scheduling.domain import WHOLE, Curve, Gang, Job, Node, Reason, Snapshot
from scheduling.domain.reason_codes import ReasonCode
from scheduling.engine.reclaim.reclaim import in_order
from scheduling.engine.state import Placement
from scheduling.lifecycle import State
from scheduling.policies.base import Policy
from scheduling.policies.packing.base import demands_of, part
from scheduling.throughput.curves import trial_curve

#: Curves without the types whose GPUs have too little memory.
_CURVES: ShapeCache[Mapping[str, Curve]] = ShapeCache(most=4096)


def as_whole_gpus(snapshot: Snapshot) -> Snapshot:
    """Pin fractional jobs to their GPUs, and exclude GPU types with too little memory for a job."""
    if not any(job.gpu_milli < WHOLE or job.gpu_memory_mib for job in snapshot.jobs):
        return snapshot
    memory = _least_memory(snapshot.nodes)
    return replace(snapshot, jobs=tuple(_as_whole(job, memory) for job in snapshot.jobs))


def _as_whole(job: Job, memory: Mapping[str, int]) -> Job:
    if job.gpu_milli < WHOLE and job.resizable:
        job = replace(job, resizable=False)
    small = tuple(kind for kind, mib in memory.items() if mib < job.gpu_memory_mib)
    if not small:
        return job

    def without(job: Job) -> Mapping[str, Curve]:
        known = job.curves or {kind: trial_curve(job.min_gpus) for kind in memory}
        return {**known, **dict.fromkeys(small, Curve((0.0,)))}

    return replace(job, curves=_CURVES.of((small, tuple(memory))).get(job, without))


def _least_memory(nodes: Iterable[Node]) -> dict[str, int]:
    """The least memory of any accelerator of each type, in MiB."""
    least: dict[str, int] = {}
    for node in nodes:
        mib = UNBOUNDED if node.gpu_memory_mib is None else node.gpu_memory_mib
        least[node.type] = min(mib, least.get(node.type, UNBOUNDED))
    return least


@dataclass
class _Bundle:
    """Fractional jobs that can share one GPU."""

    first: Job
    milli: int  # thousandths of the GPU that are left
    memory: int  # memory left on the smallest GPU that the bundle may get
    others: list[Job] = field(default_factory=list)

    def add(self, job: Job) -> None:
        self.milli -= job.gpu_milli
        self.memory -= job.gpu_memory_mib
        self.others.append(job)


@dataclass(frozen=True)
class SharedGpus:
    """What GPU sharing adds to the policy's plan."""

    snapshot: Snapshot
    seen: RoundView
    #: Job -> the shared GPU that it joins, whatever the policy decides.
    joined: Mapping[str, int] = field(default_factory=dict)
    bundles: tuple[_Bundle, ...] = ()
    #: Jobs as the policy sees them; None: hidden.
    changed: Mapping[str, Job | None] = field(default_factory=dict)

    def unbundled(self, field: RoundView, counts: Mapping[str, Gang]) -> SharedGpus:
        """Take bundles apart whose first job got nothing, for example because of its limits, while GPUs stay idle.
        `field` is what the policy saw when it assigned `counts`."""
        if not self.bundles:
            return self
        free = Counter(field.free)
        for job in field.candidates:
            if job.id in counts:
                free[counts[job.id].type] -= counts[job.id].count
        bundles, changed = list[_Bundle](), dict(self.changed)
        for bundle in self.bundles:
            idle = any(free[kind] > 0 for kind in self.seen.spans(bundle.first))
            if not bundle.others or bundle.first.id in counts or not idle:
                bundles.append(bundle)
                continue
            bundles += [_Bundle(job, 0, 0) for job in (bundle.first, *bundle.others)]
            changed |= {job.id: job for job in bundle.others}
        return self if len(bundles) == len(self.bundles) else replace(self, bundles=tuple(bundles), changed=changed)

    def complete(
        self, placement: Placement, policy_reasons: Mapping[str, Reason]
    ) -> tuple[Placement, dict[str, Reason]]:
        """Add the jobs that start on shared GPUs, with reasons for all pending fractional jobs.

        `policy_reasons`: the policy takes the first job of a bundle for one that needs a whole GPU.
        """
        if not self.joined and not self.bundles:
            return placement, {}
        kinds = cluster_index(self.snapshot.nodes).type_of
        headroom, jobs = QuotaHeadroom(self.seen), {job.id: job for job in self.seen.candidates}
        gpus, gangs, reasons = dict(placement.gpus), dict(placement.gangs), dict[str, Reason]()
        for key, gpu in self.joined.items():
            gpus[key], gangs[key] = (gpu,), Gang(kinds[gpu], 1)
            reasons[key] = _joins(jobs[key], gangs[key])
        for key, gang in gangs.items():
            if key in jobs:
                headroom.book(jobs[key], gang)
        node_capacity: NodeCapacity | None = None
        for bundle in self.bundles:
            where = gpus.get(bundle.first.id)
            if not where:
                reasons |= {job.id: _waits(job, bundle.first) for job in bundle.others}
                known = policy_reasons.get(bundle.first.id)
                if known is not None and known.token == ReasonCode.NO_ROOM:
                    reasons[bundle.first.id] = _waits_for_one(bundle.first)
                continue
            gang = gangs[bundle.first.id]
            reasons[bundle.first.id] = _begins(bundle.first, gang)
            node_capacity = node_capacity or NodeCapacity(self.snapshot, self._with(gpus))
            for job in bundle.others:
                demand = Demand.of(job)
                barred = headroom.reason(job, [gang]) or _no_room(node_capacity, demand, where[0], job)
                reasons[job.id] = barred or _joins(job, gang)
                if barred is None:
                    gpus[job.id], gangs[job.id] = where, gang
                    headroom.book(job, gang)
                    node_capacity.book(demand, where)
        return Placement(gpus, gangs), reasons

    def _with(self, gpus: Mapping[str, tuple[int, ...]]) -> Iterator[Job]:
        """All jobs that hold GPUs once the given ones are assigned."""
        yield from self.seen.pinned
        for job in self.seen.candidates:
            if gpus.get(job.id):
                yield replace(job, gpu_ids=gpus[job.id])


def share_gpus(snapshot: Snapshot, policy: Policy, may_stay: Collection[str] = ()) -> SharedGpus:
    """Decide, in the policy's order, which pending fractional jobs join a shared GPU and which are bundled. `may_stay`:
    jobs that leave their GPUs only if the policy has another one for them."""
    seen = view(snapshot)
    if not any(job.gpu_milli < WHOLE for job in seen.queued):
        return SharedGpus(snapshot, seen)
    queue = in_order(policy, snapshot, seen)
    joined = _join(snapshot, seen, [job for job in queue if job.id not in may_stay])
    waiting = [job for job in queue if job.gpu_milli < WHOLE and job.id not in joined]
    bundles = _bundle(snapshot, seen, waiting, may_stay)
    types = cluster_index(snapshot.nodes).type_of
    changed: dict[str, Job | None] = {
        job.id: replace(job, state=State.STANDBY, gpu_ids=(gpu,), gang=Gang(types[gpu], 1))
        for job in queue
        if (gpu := joined.get(job.id)) is not None
    }
    changed |= {job.id: None for bundle in bundles for job in bundle.others}
    return SharedGpus(snapshot, seen, joined, tuple(bundles), changed)


def _join(snapshot: Snapshot, seen: RoundView, queue: Iterable[Job]) -> dict[str, int]:
    """Place each job on the shared GPU on which it leaves the least room.

    If a job ahead of it waits for GPUs of the type, it only joins jobs that run at least as long as it does. Otherwise
    a stream of new jobs could keep a GPU shared forever.
    """
    node_capacity, joined = NodeCapacity(snapshot, (*seen.pinned, *seen.running)), dict[str, int]()
    if not ((node_capacity.gpu > 0) & (node_capacity.gpu < WHOLE)).any():
        return joined
    headroom, free, awaited, failed = QuotaHeadroom(seen), dict(seen.free), set[str](), set[Demand]()
    ends = _ends(snapshot, node_capacity, (*seen.pinned, *seen.running))
    for job in seen.running:
        if job.gang is not None:
            headroom.book(job, job.gang)
            free[job.gang.type] = free.get(job.gang.type, 0) - job.gang.count
    for job in queue:
        gpu = _beside(snapshot, seen, job, node_capacity, ends, awaited, failed) if job.gpu_milli < WHOLE else None
        gang = None if gpu is None else Gang(node_capacity.nodes[node_capacity.place[gpu][0]].type, 1)
        if gpu is not None and gang is not None and headroom.over(job, gang) is None:
            node_capacity.book(Demand.of(job), (gpu,))
            headroom.book(job, gang)
            joined[job.id] = gpu
            row, column = node_capacity.place[gpu]
            ends[row, column] = max(ends[row, column], latest_end(job, gang.type, snapshot.now))
            continue
        spans = seen.spans(job)
        kind = next((kind for kind, span in spans.items() if span.low <= free[kind]), None)
        if kind is None:
            awaited.update(spans)
        else:
            free[kind] -= spans[kind].low
    return joined


def _beside(
    snapshot: Snapshot,
    seen: RoundView,
    job: Job,
    node_capacity: NodeCapacity,
    ends: NDArray[np.float64],
    awaited: Collection[str],
    failed: set[Demand],
) -> int | None:
    """A shared GPU for the job, or None. `failed`: demands that did not fit before; room only shrinks within a
    round."""
    for demand in demands_of(seen, job):
        if demand in failed:
            continue
        shared = node_capacity.devices(demand) & (node_capacity.gpu < WHOLE)
        if not shared.any():
            failed.add(demand)
            continue
        end = max((latest_end(job, kind, snapshot.now) for kind in demand.types if kind in awaited), default=0.0)
        rows = node_capacity.fitting(demand)
        waited = np.isin(node_capacity.kind[rows], [n for n, kind in enumerate(node_capacity.types) if kind in awaited])
        fits = shared[rows] & (~waited[:, None] | (ends[rows] >= end))
        if fits.any():
            left = np.where(fits, node_capacity.gpu[rows], WHOLE)
            at, column = np.unravel_index(int(left.argmin()), left.shape)
            return node_capacity.nodes[int(rows[at])].gpu_ids[int(column)]
    return None


def _ends(snapshot: Snapshot, node_capacity: NodeCapacity, holding: Iterable[Job]) -> NDArray[np.float64]:
    """[node, device]: the latest end of any job that shares the device."""
    ends = np.full(node_capacity.gpu.shape, -np.inf)
    for job in holding:
        for gpu in job.gpu_ids if job.gpu_milli < WHOLE else ():
            if gpu in node_capacity.place:
                row, column = node_capacity.place[gpu]
                ends[row, column] = max(ends[row, column], latest_end(job, node_capacity.nodes[row].type, snapshot.now))
    return ends


def _bundle(snapshot: Snapshot, seen: RoundView, waiting: Iterable[Job], may_stay: Collection[str]) -> list[_Bundle]:
    """Put each job into the fullest bundle of the same types that has room for it."""
    memory = _least_memory(cluster_index(snapshot.nodes).usable)
    bundles: list[_Bundle] = []
    open_ones: dict[frozenset[str], dict[int, list[_Bundle]]] = {}
    for job in waiting:
        types = frozenset(seen.spans(job))
        by_milli = open_ones.setdefault(types, {}) if types and job.id not in may_stay else {}
        found = _with_room(by_milli, job)
        if found is None:
            least = min((memory[kind] for kind in types), default=UNBOUNDED)
            found = _Bundle(job, WHOLE - job.gpu_milli, least - job.gpu_memory_mib)
            bundles.append(found)
        else:
            by_milli[found.milli].remove(found)
            found.add(job)
        by_milli.setdefault(found.milli, []).append(found)
    return bundles


def _with_room(by_milli: Mapping[int, list[_Bundle]], job: Job) -> _Bundle | None:
    for milli in sorted(left for left, some in by_milli.items() if some and left >= job.gpu_milli):
        if by_milli[milli][0].memory >= job.gpu_memory_mib:
            return by_milli[milli][0]
    return None


def _no_room(node_capacity: NodeCapacity, demand: Demand, gpu: int, job: Job) -> Reason | None:
    """Why the job cannot use the GPU of its bundle, or None."""
    row, _ = node_capacity.place[gpu]
    fits = (
        node_capacity.has_room(demand, (gpu,))
        and node_capacity.cpu[row] >= demand.cpu
        and node_capacity.memory[row] >= demand.memory
    )
    if fits and gpu not in job.excluded_gpus:
        return None
    text = "The GPU that it would have shared is full or may not be used; it is placed again in the next round."
    return Reason(ReasonCode.WAITS_TO_SHARE, text)


def _begins(job: Job, gang: Gang) -> Reason:
    return Reason(
        ReasonCode.SHARES, f"It starts on {part(job, gang)}; other jobs may use the rest.", {"gpu_milli": job.gpu_milli}
    )


def _joins(job: Job, gang: Gang) -> Reason:
    return Reason(
        ReasonCode.SHARES, f"It starts on {part(job, gang)}, beside other jobs.", {"gpu_milli": job.gpu_milli}
    )


def _waits(job: Job, first: Job) -> Reason:
    text = f"No shared GPU has room for its {_asked(job)}; it starts beside #{first.number} once that job has a GPU."
    return Reason(ReasonCode.WAITS_TO_SHARE, text, {"by": first.id, "gpu_milli": job.gpu_milli})


def _waits_for_one(job: Job) -> Reason:
    text = f"It needs room for its {_asked(job)} on a shared GPU, or a free GPU; there is neither now."
    return Reason(ReasonCode.WAITS_TO_SHARE, text, {"gpu_milli": job.gpu_milli})


def _asked(job: Job) -> str:
    memory = f" and {gpu_memory(job.gpu_memory_mib)}" if job.gpu_memory_mib else ""
    return f"{job.gpu_milli / 10:g} %{memory}"
