"""Fractions of time: what the heterogeneity-aware policies optimise over (spec: heterogeneity-policies).

A column is a combination of one or two jobs on one accelerator type, its value the share of wall time that it is
given. Jobs with the same throughputs, gang and policy key are interchangeable, so a column stands for a whole group
of them and its value is the sum over the group: the optimum is the same, the program hundreds of columns wide.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from scheduling.domain import Curve, Job, Reason, Snapshot
from scheduling.lifecycle import State
from scheduling.policies._lp import INFINITY, Floats, Ints, LinearProgram
from scheduling.throughput import effective

NO_PARTNER = -1


@dataclass(frozen=True, slots=True)
class Column:
    """Of one group alone (`partner` is NO_PARTNER), or of pairs from two groups, on type number `kind`."""

    group: int
    partner: int
    kind: int
    steps_per_s: float
    partner_steps_per_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Service:
    """The columns that serve a group: one member's steps/s in each, and how many members a column occupies."""

    columns: Ints
    steps_per_s: Floats
    mass: Floats

    @property
    def offers(self) -> Floats:
        """Steps/s of the whole group per unit of each column."""
        return self.steps_per_s * self.mass


def _service(entries: list[tuple[int, float, float]]) -> Service:
    columns = np.array([entry[0] for entry in entries], dtype=np.int64)
    return Service(columns, np.array([e[1] for e in entries], float), np.array([e[2] for e in entries], float))


@dataclass(frozen=True)
class Fractions:
    """`capacity` is in GPUs by type; `throughput[g, w]` in steps/s of one member alone; `group_of` by job."""

    types: tuple[str, ...]
    capacity: Floats
    jobs: tuple[Job, ...]
    group_of: Ints
    throughput: Floats
    gang: Ints
    columns: tuple[Column, ...]
    absent: Mapping[str, Reason] = field(default_factory=dict)

    @cached_property
    def count(self) -> Ints:
        return np.bincount(self.group_of, minlength=len(self.gang)).astype(np.int64)

    @cached_property
    def members(self) -> list[Ints]:
        order = np.argsort(self.group_of, kind="stable")
        return np.split(order, np.cumsum(self.count)[:-1])

    @cached_property
    def first(self) -> list[Job]:
        """One job of each group."""
        return [self.jobs[int(indices[0])] for indices in self.members]

    @cached_property
    def fastest(self) -> Floats:
        return np.asarray(self.throughput.max(axis=1, initial=0.0))

    @cached_property
    def equal_share(self) -> Floats:
        """Steps/s of one member of each group under X_equal."""
        return self.throughput @ (self.capacity / self.capacity.sum())

    @cached_property
    def isolated(self) -> Floats:
        """X_isolated by group and type: each job owns 1/M of each type, by its gang, rows capped at 1."""
        share = self.capacity[None, :] / (len(self.jobs) * self.gang[:, None])
        total = share.sum(axis=1, keepdims=True)
        return np.asarray(np.where(total > 1.0, share / total, share))

    @cached_property
    def service(self) -> list[Service]:
        """Per group, what serves it."""
        found: list[list[tuple[int, float, float]]] = [[] for _ in self.gang]
        for index, column in enumerate(self.columns):
            if column.partner == column.group:
                mean = (column.steps_per_s + column.partner_steps_per_s) / 2
                found[column.group].append((index, mean, 2.0))
                continue
            found[column.group].append((index, column.steps_per_s, 1.0))
            if column.partner != NO_PARTNER:
                found[column.partner].append((index, column.partner_steps_per_s, 1.0))
        return [_service(entries) for entries in found]

    def program(self, costs: Floats | None = None, *, extra: int = 0, maximise: bool = True) -> LinearProgram:
        """Valid allocations as a linear program; `extra` further variables follow the columns."""
        width = len(self.columns)
        values = np.zeros(width + extra) if costs is None else costs
        program = LinearProgram(values, maximise=maximise)
        kinds = np.fromiter((c.kind for c in self.columns), dtype=np.int64, count=width)
        gangs = np.fromiter((self.gang[c.group] for c in self.columns), dtype=float, count=width)
        for kind, gpus in enumerate(self.capacity):
            (indices,) = np.nonzero(kinds == kind)
            program.add_row(indices, gangs[indices] / max(gpus, 1.0), -INFINITY, 1.0 if gpus else 0.0)
        for group, service in enumerate(self.service):
            program.add_row(service.columns, service.mass / self.count[group], -INFINITY, 1.0)
        return program


def build(
    snapshot: Snapshot,
    *,
    variant: str = "perf",
    key: Callable[[Job], Hashable] | None = None,
    pair_threshold: float = 1.0,
) -> Fractions:
    """The snapshot's jobs that may be given time, grouped; `key` keeps apart what a policy treats differently."""
    taking_part, absent = _participants(snapshot)
    total, largest, capacity = _gpus(snapshot, {job.id for job in taking_part})
    types = tuple(sorted(total))
    rows: dict[Hashable, tuple[float, ...]] = {}
    groups: dict[Hashable, int] = {}
    group_of, jobs = [], []
    for job in taking_part:
        known = (id(job.curves), job.min_gpus, job.types)
        row = rows.get(known)
        if row is None:
            row = rows[known] = tuple(_steps_per_s(job, kind, total[kind], largest[kind]) for kind in types)
            if variant == "agnostic":
                row = rows[known] = tuple(float(value > 0) for value in row)
        if not any(row):
            absent[job.id] = _nowhere(job)
            continue
        workload = job.workload if variant == "packed" else ""
        same = (row, job.min_gpus, workload, key(job) if key else None)
        group_of.append(groups.setdefault(same, len(groups)))
        jobs.append(job)
    throughput = np.array([same[0] for same in groups], dtype=float).reshape(len(groups), len(types))  # type: ignore[index]
    gang = np.array([same[1] for same in groups], dtype=np.int64)  # type: ignore[index]
    columns = [
        Column(group, NO_PARTNER, kind, float(throughput[group, kind]))
        for group in range(len(groups))
        for kind in range(len(types))
        if throughput[group, kind] > 0
    ]
    capacities = np.array([capacity[kind] for kind in types], dtype=float)
    found = Fractions(
        types, capacities, tuple(jobs), np.array(group_of, dtype=np.int64), throughput, gang, tuple(columns), absent
    )
    if variant != "packed" or not jobs:
        return found
    pairs = _pairs(found, [str(same[2]) for same in groups], snapshot, pair_threshold)  # type: ignore[index]
    return Fractions(
        types, capacities, found.jobs, found.group_of, throughput, gang, found.columns + tuple(pairs), absent
    )


def _participants(snapshot: Snapshot) -> tuple[list[Job], dict[str, Reason]]:
    taking_part, absent = [], {}
    for job in snapshot.jobs:
        if job.state is State.WAITING_FOR_INITIAL_CONTACT:
            text = "The executor has not accepted the job yet; it queues once it has."
            absent[job.id] = Reason("waits_for_contact", text)
        elif job.held:
            absent[job.id] = Reason("held", "The job is held; it queues again when released.")
        elif job.gpu_ids and not job.restartable:
            text = f"The job cannot checkpoint, so it keeps its {len(job.gpu_ids)} GPUs to its end."
            absent[job.id] = Reason("rigid", text)
        elif job.not_before is not None and job.not_before > snapshot.now:
            text = f"The last attempt failed; the job is tried again in {job.not_before - snapshot.now:.0f} s."
            absent[job.id] = Reason("back_off", text, {"not_before": job.not_before})
        else:
            taking_part.append(job)
    return taking_part, absent


def _gpus(snapshot: Snapshot, part: set[str]) -> tuple[Counter[str], dict[str, int], Counter[str]]:
    """GPUs by type, the largest node by type, and what those that take part may share."""
    taken = {gpu for job in snapshot.jobs if job.id not in part for gpu in job.gpu_ids}
    total, largest, capacity = Counter[str](), dict[str, int](), Counter[str]()
    for node in snapshot.nodes:
        if node.schedulable and not node.lost and node.gpu_ids:
            total[node.type] += len(node.gpu_ids)
            largest[node.type] = max(largest.get(node.type, 0), len(node.gpu_ids))
            free = len(node.gpu_ids) if not taken else sum(gpu not in taken for gpu in node.gpu_ids)
            capacity[node.type] += free
    return total, largest, capacity


def _steps_per_s(job: Job, kind: str, total: int, largest: int) -> float:
    if job.min_gpus > total or (job.types and kind not in job.types):
        return 0.0
    curve = job.curves.get(kind) if job.curves else Curve((0.0,) * (job.min_gpus - 1) + (1.0,), "trial")
    return effective(curve, job.min_gpus, largest)[-1] if curve else 0.0


def _nowhere(job: Job) -> Reason:
    gpus = f"{job.min_gpus} GPU{'' if job.min_gpus == 1 else 's'}"
    return Reason("no_type", f"No accelerator type here can run the job on {gpus}.")


def _pairs(found: Fractions, workloads: list[str], snapshot: Snapshot, threshold: float) -> list[Column]:
    """Pairs of equal gangs whose combined normalised throughput exceeds `threshold` (space sharing)."""
    pairs = []
    for one in range(len(workloads)):
        for other in range(one, len(workloads)):
            gang = int(found.gang[one])
            if gang != found.gang[other] or (one == other and found.count[one] < 2):
                continue
            known = colocated(snapshot, workloads[one], workloads[other], gang)
            for kind, name in enumerate(found.types):
                alone = found.throughput[one, kind], found.throughput[other, kind]
                both = known.get(name)
                if both and all(alone) and both[0] / alone[0] + both[1] / alone[1] > threshold:
                    pairs.append(Column(one, other, kind, *both))
    return pairs


def colocated(snapshot: Snapshot, one: str, other: str, gang: int) -> Mapping[str, tuple[float, float]]:
    """{type: (steps/s of `one`, of `other`)} where they share their GPUs; empty where nothing is known."""
    known = snapshot.pairs.get((one, other, gang))
    if known is not None:
        return known
    turned = snapshot.pairs.get((other, one, gang), {})
    return {kind: (second, first) for kind, (first, second) in turned.items()}


# From groups back to jobs --------------------------------------------------------------------------

Shares = dict[tuple[str, ...], dict[str, float]]
_LEAST = 1e-12


def expand(found: Fractions, values: Floats, demand: Floats | None = None) -> Shares:
    """The columns' values as shares of combinations of jobs: equal within a group, or such that each member
    reaches its `demand` (steps/s by job)."""
    parts = [_split(found, group, values, demand) for group in range(len(found.gang))]
    position = [{int(column): n for n, column in enumerate(service.columns)} for service in found.service]
    shares: Shares = {}
    for index, column in enumerate(found.columns):
        if values[index] <= _LEAST:
            continue
        kind = found.types[column.kind]
        own = parts[column.group][:, position[column.group][index]]
        ids = found.members[column.group]
        if column.partner == NO_PARTNER:
            for job, share in zip(ids, own, strict=True):
                _give(shares, (found.jobs[job].id,), kind, float(share))
        elif column.partner == column.group:
            for one, other, share in _pair_up(own, own, within=True):
                _give(shares, (found.jobs[ids[one]].id, found.jobs[ids[other]].id), kind, share)
        else:
            theirs, them = parts[column.partner][:, position[column.partner][index]], found.members[column.partner]
            for one, other, share in _pair_up(own, theirs, within=False):
                _give(shares, (found.jobs[ids[one]].id, found.jobs[them[other]].id), kind, share)
    return shares


def _give(shares: Shares, combination: tuple[str, ...], kind: str, share: float) -> None:
    if share > _LEAST:
        given = shares.setdefault(combination, {})
        given[kind] = given.get(kind, 0.0) + share


def _pair_up(one: Floats, other: Floats, *, within: bool) -> list[tuple[int, int, float]]:
    """Lay both sides' shares on a line and cut it at every border; within a group, against itself half a turn on."""
    ends_one, ends_other = np.cumsum(one), np.cumsum(other)
    length = min(ends_one[-1], ends_other[-1])
    turn = length / 2 if within else 0.0
    length -= turn
    cuts = np.unique(np.concatenate(([0.0], ends_one, ends_other - turn, [length])))
    cuts = cuts[(cuts >= 0) & (cuts <= length)]
    found = []
    for low, high in zip(cuts[:-1], cuts[1:], strict=True):
        middle = (low + high) / 2
        first, second = int(np.searchsorted(ends_one, middle)), int(np.searchsorted(ends_other, middle + turn))
        if high - low > _LEAST and not (within and first == second):
            found.append((first, second, float(high - low)))
    return found


def _split(found: Fractions, group: int, values: Floats, demand: Floats | None) -> Floats:
    """Time of each member (row) in each of the group's service columns."""
    service, members = found.service[group], found.members[group]
    masses = values[service.columns] * service.mass
    if demand is None:
        return np.tile(masses / len(members), (len(members), 1))
    return split_by_demand(masses, service.steps_per_s, demand[members])


def split_by_demand(masses: Floats, speeds: Floats, demand: Floats) -> Floats:
    """Split columns of `masses` seconds at `speeds` so that member m has at most 1 s and at least demand[m] steps.

    Possible where sum(mass * max(speed - l, 0)) >= sum(max(demand - l, 0)) for every l (Strassen). The most
    demanding members take the contiguous stretch of the sorted columns whose mean is their demand, which leaves the
    condition true for the rest; once a split in proportion to demand fits, it serves all that are left.
    """
    order = np.argsort(speeds, kind="stable")
    idle = max(0.0, len(demand) - masses.sum())
    left = np.concatenate(([idle], masses[order]))
    pace = np.concatenate(([0.0], speeds[order]))
    result = np.zeros((len(demand), len(masses)))
    ranked = np.argsort(-demand, kind="stable")
    sums = np.concatenate((np.cumsum(demand[ranked][::-1])[::-1], [0.0]))
    for n, member in enumerate(ranked):
        wanted, total = demand[member], sums[n]
        busy = left[1:].sum()
        if total <= 0 or wanted / total * busy <= 1.0 + 1e-12:
            rest = ranked[n:]
            weight = demand[rest] / total if total > 0 else np.full(len(rest), 1.0 / len(rest))
            result[np.ix_(rest, order)] = weight[:, None] * left[1:][None, :]
            break
        taken = _stretch(left, pace, wanted)
        left = np.maximum(left - taken, 0.0)
        result[member, order] = taken[1:]
    return result


def _stretch(left: Floats, pace: Floats, wanted: float) -> Floats:
    """One second of what is left, contiguous in pace, with a mean of `wanted` (or of the least there is above it)."""
    ends = np.cumsum(left)
    starts = ends - left
    length = min(1.0, float(ends[-1]))

    def at(begin: float) -> Floats:
        return np.maximum(np.minimum(ends, begin + length) - np.maximum(starts, begin), 0.0)

    low, high = 0.0, float(ends[-1]) - length
    if at(low) @ pace >= wanted or high <= low:
        return at(low)
    if at(high) @ pace <= wanted:
        return at(high)
    # The mean is piecewise quadratic in the beginning, and grows: a few Newton-safe halvings reach double precision.
    for _ in range(60):
        middle = (low + high) / 2
        if at(middle) @ pace >= wanted:
            high = middle
        else:
            low = middle
    return at(high)


def achieved(found: Fractions, shares: Mapping[tuple[str, ...], Mapping[str, float]]) -> dict[str, float]:
    """Effective throughput of each job, in steps/s."""
    number = {kind: n for n, kind in enumerate(found.types)}
    group = {job.id: int(g) for job, g in zip(found.jobs, found.group_of, strict=True)}
    paired = {(c.group, c.partner, c.kind): c for c in found.columns if c.partner != NO_PARTNER}
    reached = dict.fromkeys(group, 0.0)
    for combination, by_type in shares.items():
        for kind, share in by_type.items():
            if len(combination) == 1:
                reached[combination[0]] += share * found.throughput[group[combination[0]], number[kind]]
                continue
            for job, speed in zip(combination, _pair_speeds(paired, group, combination, number[kind]), strict=True):
                reached[job] += share * speed
    return reached


def _pair_speeds(
    paired: Mapping[tuple[int, int, int], Column], group: Mapping[str, int], pair: Sequence[str], kind: int
) -> tuple[float, float]:
    one, other = group[pair[0]], group[pair[1]]
    column = paired.get((one, other, kind))
    if column is not None:
        return column.steps_per_s, column.partner_steps_per_s
    column = paired[other, one, kind]
    return column.partner_steps_per_s, column.steps_per_s
