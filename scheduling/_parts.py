"""Parts of GPUs under policies that give whole ones.

Whoever has a part keeps it to its end, beside whatever the policy does with the other GPUs. Of those that wait, whoever
finds room on a GPU that is shared already starts there, before the policy is asked: it takes no whole GPU from anybody.
The others are bundled, as many as one GPU has room for; the policy is shown the first of each bundle as a job of one
GPU, and where that starts the rest of its bundle starts beside it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from scheduling._telling import Layout
from scheduling.domain import WHOLE, Curve, Gang, Job, Node, Reason, Snapshot
from scheduling.lifecycle import State
from scheduling.policies._known import fleet
from scheduling.policies._limits import Rooms
from scheduling.policies._packing import demands_of, part
from scheduling.policies._view import View, view
from scheduling.policies._yard import UNBOUNDED, Demand, Yard
from scheduling.throughput import trial_curve


def as_whole(snapshot: Snapshot) -> Snapshot:
    """Whoever has a part of a GPU stays on it, and nobody is placed where a GPU has too little memory for it."""
    if not any(job.gpu_milli < WHOLE or job.gpu_memory_mib for job in snapshot.jobs):
        return snapshot
    memory = _least_memory(snapshot.nodes)
    return replace(snapshot, jobs=tuple(_as_whole(job, memory) for job in snapshot.jobs))


def _as_whole(job: Job, memory: Mapping[str, int]) -> Job:
    if job.gpu_milli < WHOLE and job.resizable:
        job = replace(job, resizable=False)
    small = [kind for kind, mib in memory.items() if mib < job.gpu_memory_mib]
    if not small:
        return job
    known = job.curves or {kind: trial_curve(job.min_gpus) for kind in memory}
    return replace(job, curves={**known, **dict.fromkeys(small, Curve((0.0,)))})


def _least_memory(nodes: Iterable[Node]) -> dict[str, int]:
    """Of the accelerators of each type, in MiB."""
    least: dict[str, int] = {}
    for node in nodes:
        mib = UNBOUNDED if node.gpu_memory_mib is None else node.gpu_memory_mib
        least[node.type] = min(mib, least.get(node.type, UNBOUNDED))
    return least


@dataclass
class _Bundle:
    """Jobs for one GPU."""

    first: Job
    milli: int  # what is left
    memory: int  # likewise, on the smallest GPU that it may be given
    others: list[Job] = field(default_factory=list)

    def add(self, job: Job) -> None:
        self.milli -= job.gpu_milli
        self.memory -= job.gpu_memory_mib
        self.others.append(job)


@dataclass(frozen=True)
class Parts:
    """What the sharing of GPUs adds to the policy's plan."""

    snapshot: Snapshot
    seen: View
    #: Who starts beside others, whatever the policy says: the GPU.
    joined: Mapping[str, int] = field(default_factory=dict)
    bundles: tuple[_Bundle, ...] = ()
    #: How the policy sees these jobs; None: not at all.
    changed: Mapping[str, Job | None] = field(default_factory=dict)

    def complete(self, layout: Layout) -> tuple[Layout, dict[str, Reason]]:
        """With those who start beside others, and why jobs that wait for parts start or do not."""
        if not self.joined and not self.bundles:
            return layout, {}
        kinds = fleet(self.snapshot.nodes).type_of
        rooms, jobs = Rooms(self.seen), {job.id: job for job in self.seen.taking_part}
        gpus, gangs, reasons = dict(layout.gpus), dict(layout.gangs), dict[str, Reason]()
        for key, gpu in self.joined.items():
            gpus[key], gangs[key] = (gpu,), Gang(kinds[gpu], 1)
            reasons[key] = _joins(jobs[key], gangs[key])
        for key, gang in gangs.items():
            if key in jobs:
                rooms.book(jobs[key], gang)
        for bundle in self.bundles:
            where = gpus.get(bundle.first.id)
            if where:
                reasons[bundle.first.id] = _begins(bundle.first, gangs[bundle.first.id])
            for job in bundle.others:
                why = _waits(job, bundle.first) if not where else _why_not(job, where[0], kinds[where[0]], rooms)
                reasons[job.id] = why or _joins(job, gangs[bundle.first.id])
                if where and why is None:
                    gpus[job.id], gangs[job.id] = where, gangs[bundle.first.id]
                    rooms.book(job, gangs[job.id])
        return Layout(gpus, gangs), reasons


def share(snapshot: Snapshot, may_stay: Collection[str] = ()) -> Parts:
    """Of the jobs that wait for a part of a GPU, in queue order: who joins, and who is bundled with whom. `may_stay`:
    those that leave what they have only where the policy has a GPU for them."""
    seen = view(snapshot)
    waiting = [job for job in seen.queued if job.gpu_milli < WHOLE]
    if not waiting:
        return Parts(snapshot, seen)
    joined = _join(snapshot, seen, [job for job in waiting if job.id not in may_stay])
    bundles = _bundle(snapshot, seen, [job for job in waiting if job.id not in joined], may_stay)
    types = fleet(snapshot.nodes).type_of
    changed: dict[str, Job | None] = {
        job.id: replace(job, state=State.STANDBY, gpu_ids=(gpu,), gang=Gang(types[gpu], 1))
        for job in waiting
        if (gpu := joined.get(job.id)) is not None
    }
    changed |= {job.id: None for bundle in bundles for job in bundle.others}
    return Parts(snapshot, seen, joined, tuple(bundles), changed)


def _join(snapshot: Snapshot, seen: View, waiting: Iterable[Job]) -> dict[str, int]:
    """Each on the GPU that it leaves the least of, among those on which others have parts."""
    yard, rooms, joined = Yard(snapshot, (*seen.fixed, *seen.running)), Rooms(seen), dict[str, int]()
    for job in seen.running:
        if job.gang is not None:
            rooms.book(job, job.gang)
    for job in waiting:
        for demand in demands_of(seen, job):
            gpu = _tightest(yard, demand)
            gang = None if gpu is None else Gang(yard.nodes[yard.place[gpu][0]].type, 1)
            if gpu is not None and gang is not None and rooms.over(job, gang) is None:
                yard.book(demand, (gpu,))
                rooms.book(job, gang)
                joined[job.id] = gpu
                break
    return joined


def _tightest(yard: Yard, demand: Demand) -> int | None:
    rows = yard.fitting(demand)
    shared = yard.devices(demand)[rows] & (yard.gpu[rows] < WHOLE)
    if not shared.any():
        return None
    left = np.where(shared, yard.gpu[rows], WHOLE)
    at, column = np.unravel_index(int(left.argmin()), left.shape)
    return yard.nodes[int(rows[at])].gpu_ids[int(column)]


def _bundle(snapshot: Snapshot, seen: View, waiting: Iterable[Job], may_stay: Collection[str]) -> list[_Bundle]:
    """Each in the fullest bundle that has room for it, of those for types of which it may use every one."""
    memory = _least_memory(fleet(snapshot.nodes).usable)
    bundles: list[_Bundle] = []
    open_ones: dict[frozenset[str], dict[int, list[_Bundle]]] = {}
    for job in waiting:
        types = frozenset(seen.spans(job))
        found = None if job.id in may_stay else _with_room(open_ones, job, types)
        if found is None:
            least = min((memory[kind] for kind in types), default=UNBOUNDED)
            found = types, _Bundle(job, WHOLE - job.gpu_milli, least - job.gpu_memory_mib)
            bundles.append(found[1])
        else:
            open_ones[found[0]][found[1].milli].remove(found[1])
            found[1].add(job)
        if types:
            open_ones.setdefault(found[0], {}).setdefault(found[1].milli, []).append(found[1])
    return bundles


def _with_room(
    open_ones: Mapping[frozenset[str], Mapping[int, list[_Bundle]]], job: Job, types: frozenset[str]
) -> tuple[frozenset[str], _Bundle] | None:
    for kinds, by_milli in open_ones.items():
        if kinds <= types:
            for milli in sorted(left for left, some in by_milli.items() if some and left >= job.gpu_milli):
                bundle = by_milli[milli][0]
                if bundle.memory >= job.gpu_memory_mib:
                    return kinds, bundle
    return None


def _why_not(job: Job, gpu: int, kind: str, rooms: Rooms) -> Reason | None:
    """What keeps it off the GPU of its bundle."""
    if gpu in job.excluded_gpus:
        text = "It may not use the GPU that it would have shared; it is placed anew in the next round."
        return Reason("waits_to_share", text)
    return rooms.reason(job, [Gang(kind, 1)])


def _begins(job: Job, gang: Gang) -> Reason:
    return Reason("shares", f"It starts on {part(job, gang)}; others may have the rest.", {"gpu_milli": job.gpu_milli})


def _joins(job: Job, gang: Gang) -> Reason:
    return Reason("shares", f"It starts on {part(job, gang)}, beside other jobs.", {"gpu_milli": job.gpu_milli})


def _waits(job: Job, first: Job) -> Reason:
    text = f"No shared GPU has {job.gpu_milli / 10:g} % free; it starts beside #{first.number} once that has a GPU."
    return Reason("waits_to_share", text, {"by": first.id, "gpu_milli": job.gpu_milli})
