"""Time shares: the variables of the heterogeneity-aware policies (spec: heterogeneity-policies).

A column is a combination of one or two jobs on one accelerator type, its value is its share of wall time. Jobs with the
same throughputs and gang are interchangeable, so a column stands for a whole group of them and its value is the sum
over the group: the optimum is the same, and the program has hundreds of columns. `cutting_planes` states what single
members need of their group.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from scheduling.capacity.cluster_view import queue_of
from scheduling.capacity.memo import cluster_index
from scheduling.domain import Curve, Job, Reason, Snapshot
from scheduling.domain.reason_codes import ReasonCode
from scheduling.domain.wording import counted
from scheduling.lifecycle import State
from scheduling.solvers.lp import INFINITY, Floats, Ints, LinearProgram
from scheduling.throughput.curves import effective

NO_PARTNER = -1


@dataclass(frozen=True, slots=True)
class Columns:
    """By column: the group, its partner's group or NO_PARTNER, the index of the type, and both members' steps/s."""

    group: Ints
    partner: Ints
    kind: Ints
    steps_per_s: Floats
    partner_steps_per_s: Floats

    def __len__(self) -> int:
        return len(self.group)

    def joined(self, other: Columns) -> Columns:
        return Columns(*(np.concatenate((getattr(self, n), getattr(other, n))) for n in self.__slots__))


@dataclass(frozen=True, slots=True)
class Entries:
    """Which columns serve which groups, ordered by group: one entry per column and group in it.

    `steps_per_s` is that of one member; a column of pairs within a group occupies two members (`mass`).
    """

    group: Ints
    column: Ints
    steps_per_s: Floats
    mass: Floats
    start: Ints  # of each group, and one past the last

    def of(self, group: int) -> slice:
        return slice(int(self.start[group]), int(self.start[group + 1]))


@dataclass(frozen=True, slots=True)
class Levels:
    """0 and the speeds of each group's columns, ascending by group. `order` sorts the entries likewise, and `above` is
    the first of them that is faster than a level; `step` separates groups when both are combined in one number."""

    group: Ints
    steps_per_s: Floats
    order: Ints
    above: Ints
    step: float


@dataclass(frozen=True, slots=True)
class ByJob:
    """Shares if no job has a partner: `shares[type, job]`."""

    shares: Floats


@dataclass(frozen=True)
class Fractions:
    """`capacity` is in GPUs by type; `throughput[g, w]` in steps/s of one member alone; `group_of` by job."""

    types: tuple[str, ...]
    capacity: Floats
    jobs: tuple[Job, ...]
    group_of: Ints
    throughput: Floats
    gang: Ints
    columns: Columns
    absent: Mapping[str, Reason] = field(default_factory=dict)

    @cached_property
    def paired(self) -> bool:
        return bool((self.columns.partner != NO_PARTNER).any())

    @cached_property
    def count(self) -> Ints:
        return np.bincount(self.group_of, minlength=len(self.gang)).astype(np.int64)

    @cached_property
    def members(self) -> list[Ints]:
        order = np.argsort(self.group_of, kind="stable")
        return np.split(order, np.cumsum(self.count)[:-1])

    @cached_property
    def fastest(self) -> Floats:
        """Steps/s of each group's members in the best of all columns."""
        best = np.zeros(len(self.gang))
        np.maximum.at(best, self.entries.group, self.entries.steps_per_s)
        return best

    @cached_property
    def equal_share(self) -> Floats:
        """Steps/s of one member of each group under X_equal."""
        return np.asarray(self.throughput @ (self.capacity / self.capacity.sum()))

    @cached_property
    def isolated(self) -> Floats:
        """X_isolated by group and type: each job owns 1/M of each type, by its gang, rows capped at 1."""
        share = self.capacity[None, :] / (len(self.jobs) * self.gang[:, None])
        total = share.sum(axis=1, keepdims=True)
        return np.asarray(np.where(total > 1.0, share / total, share))

    @cached_property
    def entries(self) -> Entries:
        columns, numbers = self.columns, np.arange(len(self.columns))
        within = columns.partner == columns.group
        across = (columns.partner != NO_PARTNER) & ~within
        mean = (columns.steps_per_s + columns.partner_steps_per_s) / 2
        group = np.concatenate((columns.group, columns.partner[across]))
        order = np.argsort(group, kind="stable")
        speeds = np.concatenate((np.where(within, mean, columns.steps_per_s), columns.partner_steps_per_s[across]))
        mass = np.concatenate((np.where(within, 2.0, 1.0), np.ones(int(across.sum()))))
        column = np.concatenate((numbers, numbers[across]))
        start = np.concatenate(([0], np.cumsum(np.bincount(group, minlength=len(self.gang)))))
        return Entries(group[order], column[order], speeds[order], mass[order], start)

    @cached_property
    def levels(self) -> Levels:
        entries = self.entries
        order = np.lexsort((entries.steps_per_s, entries.group))
        groups = np.arange(len(self.gang))
        group = np.append(entries.group[order], groups)
        speed = np.append(entries.steps_per_s[order], np.zeros(len(groups)))
        sorted_too = np.lexsort((speed, group))
        group, speed = group[sorted_too], speed[sorted_too]
        new = np.append(True, (np.diff(group) > 0) | (np.diff(speed) > 0))
        group, speed = group[new], speed[new]
        step = 2.0 * float(self.fastest.max(initial=1.0)) + 1.0
        above = np.searchsorted(entries.group[order] * step + entries.steps_per_s[order], group * step + speed, "right")
        return Levels(group, speed, order, above, step)

    def program(self, costs: Floats | None = None, *, extra: int = 0, maximise: bool = True) -> LinearProgram:
        """Valid allocations as a linear program; `extra` more variables follow the columns."""
        width = len(self.columns)
        program = LinearProgram(np.zeros(width + extra) if costs is None else costs, maximise=maximise)
        gangs, kind, entries = self.gang[self.columns.group].astype(float), self.columns.kind, self.entries
        by_kind = np.argsort(kind, kind="stable")
        start = np.concatenate(([0], np.cumsum(np.bincount(kind, minlength=len(self.types)))))
        used = (gangs / np.maximum(self.capacity, 1.0)[kind])[by_kind]
        most = (self.capacity > 0).astype(float)
        program.add_rows(start, by_kind, used, np.full(len(most), -INFINITY), most)
        part = entries.mass / self.count[entries.group]
        first = np.unique(entries.start)  # a group without any column left has none
        ones = np.ones(len(first) - 1)
        program.add_rows(first, entries.column, part, -INFINITY * ones, ones)
        return program

    def only(self, columns: Ints) -> Fractions:
        """As if there were no other columns."""
        return replace(self, columns=Columns(*(getattr(self.columns, name)[columns] for name in Columns.__slots__)))

    def worth_of_columns(self, per_step: Floats) -> Floats:
        """Sum over a column's members of their steps/s times the worth of a step of their group."""
        entries = self.entries
        value = entries.steps_per_s * entries.mass * per_step[entries.group]
        return np.asarray(np.bincount(entries.column, weights=value, minlength=len(self.columns)), dtype=float)


def build(snapshot: Snapshot, *, variant: str = "perf", pair_threshold: float = 1.0, apart: bool = False) -> Fractions:
    """The snapshot's candidates, grouped by equal throughputs, or each in its own group."""
    candidates, absent = participants(snapshot)
    largest, capacity = room_of(snapshot, {job.id for job in candidates})
    types = tuple(sorted(capacity))
    reach = reach_of(snapshot, capacity, largest)
    groups: dict[tuple[tuple[float, ...], int, str, str], int] = {}
    numbers: dict[Hashable, int] = {}  # by a cheap key; -1: runs nowhere
    packed = variant == "packed"
    keys: list[Hashable] = [(id(job.curves), job.min_gpus, job.types) for job in candidates]
    if packed or apart:
        own = ((job.workload if packed else "", job.id if apart else "") for job in candidates)
        keys = list(zip(keys, own, strict=True))
    first = dict(zip(reversed(keys), reversed(candidates), strict=True))
    for key in dict.fromkeys(keys):
        job = first[key]
        row = tuple(steps_per_s(job, kind, reach[kind], largest[kind]) for kind in types)
        row = tuple(float(value > 0) for value in row) if variant == "agnostic" else row
        alike = row, job.min_gpus, job.workload if packed else "", job.id if apart else ""
        numbers[key] = groups.setdefault(alike, len(groups)) if any(row) else -1
    group_of = [numbers[key] for key in keys]
    if -1 in group_of:
        absent |= {job.id: _nowhere(job) for job, number in zip(candidates, group_of, strict=True) if number < 0}
        candidates = [job for job, number in zip(candidates, group_of, strict=True) if number >= 0]
        group_of = [number for number in group_of if number >= 0]
    throughput = np.array([row for row, *_ in groups], dtype=float).reshape(len(groups), len(types))
    group, kind = np.nonzero(throughput)
    alone, zeros = throughput[group, kind], np.zeros(len(group))
    columns = Columns(group.astype(np.int64), np.full(len(group), NO_PARTNER), kind.astype(np.int64), alone, zeros)
    gang = np.array([gpus for _, gpus, *_ in groups], dtype=np.int64)
    capacities = np.array([capacity[name] for name in types], dtype=float)
    found = Fractions(
        types, capacities, tuple(candidates), np.array(group_of, dtype=np.int64), throughput, gang, columns, absent
    )
    if not packed or not candidates:
        return found
    pairs = _pairs(found, [workload for _, _, workload, _ in groups], snapshot, pair_threshold)
    return replace(found, columns=columns.joined(pairs))


def participants(snapshot: Snapshot) -> tuple[list[Job], dict[str, Reason]]:
    """Candidates for time shares in queue order, and why the other jobs are not."""
    candidates, absent, queue = [], {}, queue_of(snapshot)
    contact = State.WAITING_FOR_INITIAL_CONTACT
    odd = [
        job
        for job in queue
        if job.held
        or job.waits_for
        or job.not_before is not None
        or job.state is contact
        or not job.restartable
        or not job.resizable
    ]
    if not odd:
        return list(queue), {}
    for job in queue:
        if job.state is State.WAITING_FOR_INITIAL_CONTACT:
            text = "The executor has not accepted the job yet; it queues once it has."
            absent[job.id] = Reason(ReasonCode.WAITS_FOR_CONTACT, text)
        elif job.held:
            absent[job.id] = Reason(
                ReasonCode.ON_HOLD_SHARES, "The job is on hold; it queues again when it is released."
            )
        elif job.waits_for and not job.gpu_ids:
            absent[job.id] = Reason(ReasonCode.DEPENDENCY, job.waits_for)
        elif job.gpu_ids and not job.restartable:
            text = f"The job cannot be checkpointed, so it keeps its {counted(len(job.gpu_ids), 'GPU')} until it ends."
            absent[job.id] = Reason(ReasonCode.RIGID, text)
        elif job.gpu_ids and not job.resizable:
            gpus = counted(len(job.gpu_ids), "GPU")
            text = f"It keeps its {gpus} and is not resized: some are on nodes where it may not start any more."
            absent[job.id] = Reason(ReasonCode.NOT_RESIZABLE, text)
        elif job.not_before is not None and job.not_before > snapshot.now:
            text = f"The last attempt failed; the job is retried in {job.not_before - snapshot.now:.0f} s."
            absent[job.id] = Reason(ReasonCode.BACK_OFF, text, {"not_before": job.not_before})
        else:
            candidates.append(job)
    return candidates, absent


def room_of(snapshot: Snapshot, part: set[str]) -> tuple[Mapping[str, int], dict[str, int]]:
    """The largest node by type, and the GPUs that candidates may share."""
    found = cluster_index(snapshot.nodes)
    capacity = dict(found.total)
    others = [job for job in snapshot.jobs if job.id not in part] if len(part) < len(snapshot.jobs) else ()
    for gpu in {gpu for job in others for gpu in job.gpu_ids} | snapshot.others.gpus.keys():
        kind = found.type_of.get(gpu)
        if kind is not None:
            capacity[kind] -= 1
    return found.largest, capacity


def reach_of(snapshot: Snapshot, capacity: Mapping[str, int], largest: Mapping[str, int]) -> Mapping[str, int]:
    """By type: the GPUs of the largest possible gang."""
    return capacity if snapshot.multi_node else {kind: min(gpus, largest[kind]) for kind, gpus in capacity.items()}


def steps_per_s(job: Job, kind: str, gpus: int, largest: int) -> float:
    """On the least gang, with so many GPUs of the type and nodes of at most `largest`; 0 if it cannot run."""
    if job.min_gpus > gpus or (job.types and kind not in job.types):
        return 0.0
    curve = job.curves.get(kind) if job.curves else Curve((0.0,) * (job.min_gpus - 1) + (1.0,), "trial")
    if curve is None:
        return 0.0
    if job.min_gpus <= largest:  # the same without spanning nodes, several times as fast
        return max(curve.steps_per_s[: job.min_gpus], default=0.0)
    return effective(curve, job.min_gpus, largest)[-1]


def _nowhere(job: Job) -> Reason:
    gpus = f"{job.min_gpus} GPU{'' if job.min_gpus == 1 else 's'}"
    return Reason(
        ReasonCode.NO_TYPE, f"Every accelerator type that could run the job is permanently taken, for {gpus}."
    )


def _pairs(found: Fractions, workloads: list[str], snapshot: Snapshot, threshold: float) -> Columns:
    """Pairs of equal gangs whose combined normalised throughput exceeds `threshold` (space sharing)."""
    pairs: list[tuple[int, int, int, float, float]] = []
    gangs, counts, speeds_of = found.gang.tolist(), found.count.tolist(), found.throughput.tolist()
    alike = {gang: [one for one, other in enumerate(gangs) if other == gang] for gang in set(gangs)}
    for one, (first, gang, of_one) in enumerate(zip(workloads, gangs, speeds_of, strict=True)):
        for other in alike[gang]:
            if other < one or (other == one and counts[one] < 2):
                continue
            known = colocated(snapshot, first, workloads[other], gang)
            for kind, (name, mine, theirs) in enumerate(zip(found.types, of_one, speeds_of[other], strict=True)):
                both = known.get(name)
                if both and mine and theirs and both[0] / mine + both[1] / theirs > threshold:
                    pairs.append((one, other, kind, *both))
    whole = np.array([pair[:3] for pair in pairs], dtype=np.int64).reshape(-1, 3).T
    speeds = np.array([pair[3:] for pair in pairs], dtype=float).reshape(-1, 2).T
    return Columns(*whole, *speeds)


def colocated(snapshot: Snapshot, one: str, other: str, gang: int) -> Mapping[str, tuple[float, float]]:
    """{type: (steps/s of `one`, of `other`)} when they share their GPUs; empty if unknown."""
    known = snapshot.pairs.get((one, other, gang))
    if known is not None:
        return known
    turned = snapshot.pairs.get((other, one, gang), {})
    return {kind: (second, first) for kind, (first, second) in turned.items()}
