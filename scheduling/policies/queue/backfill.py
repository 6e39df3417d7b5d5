"""Starts jobs in order of priority, and backfills around those that must wait.

A job that does not fit gets a reservation: the earliest time at which its gang will be free, by the expected ends of
the others. A job behind it may start now if it delays no reservation: of the first waiting job only (EASY; Lifka, "The
ANL/IBM SP Scheduling System", 1995), or of all (conservative; Mu'alem and Feitelson, 2001).
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from scheduling.capacity.cluster_view import RoundView, present_gang
from scheduling.capacity.free_capacity import FreeCapacity
from scheduling.capacity.memo import cluster_index
from scheduling.capacity.release_timetable import Timetable
from scheduling.domain import WHOLE, Gang, Job, Reason, Snapshot
from scheduling.domain.reason_codes import ReasonCode
from scheduling.domain.wording import span, words
from scheduling.lifecycle import TRAINING

Kind = Literal["none", "easy", "conservative"]

#: Exiting processes, and jobs past their expected end, are assumed to be gone after this time.
_SOON_S = 30.0


@dataclass(frozen=True, slots=True)
class Slot:
    """When and on what a job could start, and how long it would take."""

    at: float
    gang: Gang
    duration_s: float


@dataclass
class Backfill:
    """`default_s`: assumed duration of a job without known speed, time limit or deadline."""

    snapshot: Snapshot
    view: RoundView
    free_capacity: FreeCapacity
    kind: Kind
    default_s: float
    sizes: Literal["min", "max"] = "min"
    reasons: dict[str, Reason] = field(default_factory=dict)
    #: Jobs behind the first of their partition; computed on demand (`behind`).
    waits_behind: dict[str, tuple[Job, Slot | None]] = field(default_factory=dict)
    #: Jobs that wait for GPUs, by partition: only a partition's own jobs block its queue.
    firsts: dict[str, Job] = field(default_factory=dict)
    #: By type, how long all its GPUs would need for the jobs that wait for it behind the first.
    _ahead_s: dict[str, float] = field(default_factory=dict)
    _taken: dict[str, list[Slot]] = field(default_factory=dict)
    _tables: dict[str, Timetable] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._free = dict(self.free_capacity.free)

    @cached_property
    def leaving(self) -> Mapping[str, list[tuple[float, int, Job]]]:
        """When jobs are expected to leave GPUs of a type; in order of time."""
        now, found = self.snapshot.now, dict[str, list[tuple[float, int, Job]]]()
        shared: dict[int, tuple[float, Job]] = {}  # a shared GPU is free when the last job on it has left
        types = self._type_of
        for job in (*self.view.running, *self.view.pinned):
            gang = job.gang or present_gang(job, types)
            if gang is not None:
                left_s = self.duration_s(job, gang)
                at = now + (left_s if left_s > 0 else _SOON_S)
                if job.gpu_milli == WHOLE:
                    found.setdefault(gang.type, []).append((at, gang.count, job))
                elif job.gpu_ids and at > shared.get(job.gpu_ids[0], (0.0, job))[0]:
                    shared[job.gpu_ids[0]] = at, job
        for gpu, (at, job) in shared.items():
            found.setdefault(types[gpu], []).append((at, 1, job))
        return {name: sorted(found.get(name, ()), key=lambda end: end[:2]) for name in self.view.types}

    @property
    def _type_of(self) -> Mapping[int, str]:
        return cluster_index(self.snapshot.nodes).every_type

    def _make_table(self, name: str) -> Timetable:
        """Built when the first job has to wait: a queue in which all jobs fit needs no table."""
        others, soon = self.snapshot.others.gpus, self.snapshot.now + _SOON_S
        mine = [gpu for gpu in self.snapshot.blocked_gpu_ids if self._type_of.get(gpu) == name]
        ways = [(at, count) for at, count, _ in self.leaving[name]]
        ways += [(soon, sum(gpu not in others for gpu in mine))]
        ways += [(max(until, soon), 1) for gpu in mine if (until := others.get(gpu)) is not None]
        table = self._tables[name] = Timetable(self.snapshot.now, self._free[name], ways)
        for slot in self._taken.get(name, ()):
            table.take(slot.gang.count, slot.at, slot.duration_s)
        return table

    def _take(self, slot: Slot) -> None:
        name = slot.gang.type
        self._taken.setdefault(name, []).append(slot)
        if name in self._tables:
            self._tables[name].take(slot.gang.count, slot.at, slot.duration_s)

    def _earliest(self, gang: Gang, duration_s: float) -> float:
        """While no job waits, nothing is reserved and free GPUs stay free."""
        table = self._tables.get(gang.type)
        if table is None:
            if not self.firsts and self._left(gang.type) >= gang.count:
                return self.snapshot.now
            table = self._make_table(gang.type)
        return table.earliest(gang.count, duration_s)

    def _left(self, name: str) -> int:
        return self._free[name] - sum(slot.gang.count for slot in self._taken.get(name, ()))

    def duration_s(self, job: Job, gang: Gang) -> float:
        """Seconds until the job ends on a gang: by its steps and speed, or its time limit; if neither is known, until
        its deadline, or the default.

        A training job has its launch behind it.
        """
        speed = self.view.steps_per_s(job, gang) if gang.type in job.curves else 0.0
        seconds = job.remaining_steps / speed if speed > 0 else math.inf
        if job.time_limit_s is not None and job.time_limit_s < seconds:
            seconds = job.time_limit_s
        if seconds == math.inf:
            left_s = None if job.deadline is None else job.deadline - self.snapshot.now
            return self.default_s if left_s is None or left_s <= 0 else left_s
        return seconds if job.state in TRAINING else seconds + job.restart_cost_s

    def run(self, queue: Sequence[Job]) -> None:
        for job in queue:
            gangs = self._gangs(job)
            over = self.free_capacity.headroom.reason(job, gangs) if job.limits else None
            if over is not None:  # it blocks no other job: when its limit lets it start is unknown
                self.reasons[job.id] = over
            elif not gangs:
                self.reasons[job.id] = self.free_capacity.no_room(job, {})
            else:
                self._place(job, gangs)

    def _gangs(self, job: Job) -> tuple[Gang, ...]:
        spans = self.view.spans(job)
        return spans.largest if self.sizes == "max" and job.max_gpus is not None else spans.smallest

    def _place(self, job: Job, gangs: tuple[Gang, ...]) -> None:
        first = self.firsts.get(job.partition)
        if first is not None and self.kind == "none":
            self.waits_behind[job.id] = first, None
            return
        behind = first is not None and self.kind == "easy"
        slot = self._slot(job, gangs, behind=behind)
        if slot is None:
            self.reasons[job.id] = self.free_capacity.no_room(job, {gang.type: gang.count for gang in gangs})
            return
        starts = slot.at <= self.snapshot.now
        if starts:
            self.free_capacity.give(job, slot.gang)
            self.reasons[job.id] = self._started(first, slot)
        elif first is None:
            self.reasons[job.id] = self._waits(slot)
        else:
            self.waits_behind[job.id] = first, slot
        if starts or first is None or self.kind == "conservative":
            self._take(slot)
        if not starts and first is None:
            self.firsts[job.partition] = job

    def _slot(self, job: Job, gangs: Iterable[Gang], *, behind: bool) -> Slot | None:
        """The gang on which the job ends first; starts that a limit forbids now do not count. `behind`: no reservation
        is made for the job later, so the work of jobs ahead of it that wait for the same GPUs is added."""
        now, best, found = self.snapshot.now, (math.inf, ""), None
        for gang in gangs:
            kind, duration_s = gang.type, self.duration_s(job, gang)
            at = self._earliest(gang, duration_s)
            if at == math.inf or (at <= now and not self.free_capacity.allows(job, gang)):
                continue
            later_s = self._ahead_s.get(kind, 0.0) if behind and at > now else 0.0
            if (ends := (at + later_s + duration_s, kind)) < best:
                best, found = ends, Slot(at, gang, duration_s)
        if found is not None and behind and found.at > now:
            work_s = found.gang.count * found.duration_s / self.view.total[found.gang.type]
            self._ahead_s[found.gang.type] = self._ahead_s.get(found.gang.type, 0.0) + work_s
        return found

    def freed_by(self, slot: Slot) -> Job | None:
        """The job whose end makes the slot's start possible: the last one that leaves its type before."""
        ends = self.leaving[slot.gang.type]
        place = bisect_right(ends, slot.at, key=lambda end: end[0])
        return ends[place - 1][2] if place else None

    def _started(self, first: Job | None, slot: Slot) -> Reason:
        if first is None:
            text = f"It has the highest priority of those that wait, so it starts on {words(slot.gang)}."
            return Reason(ReasonCode.STARTED, text)
        text = (
            f"It fits beside the reservation of #{first.number}, whose start it does not delay, "
            f"so it starts on {words(slot.gang)}."
        )
        return Reason(ReasonCode.BACKFILLED, text, {"by": first.id})

    def _waits(self, slot: Slot) -> Reason:
        free = self.free_capacity.free[slot.gang.type]
        missing = max(0, slot.gang.count - free)
        whose = self.freed_by(slot)
        end = f", when #{whose.number} is expected to end" if whose else ""
        wait = span(slot.at - self.snapshot.now)
        text = (
            f"It is next: {missing} more {slot.gang.type} must become free for "
            f"{words(slot.gang)}, expected in {wait}{end}."
        )
        return Reason(ReasonCode.RESOURCES, text, self._detail(slot, whose, missing=missing))

    def behind(self, key: str) -> Reason:
        first, slot = self.waits_behind[key]
        text = f"#{first.number} and others of higher priority are ahead"
        if slot is None:
            return Reason(ReasonCode.PRIORITY, f"{text}; this one starts after them.", {"by": first.id})
        whose = self.freed_by(slot) if self.kind == "conservative" else None
        text += f"; without delaying them it can start in {span(slot.at - self.snapshot.now)}."
        return Reason(ReasonCode.PRIORITY, text, self._detail(slot, whose) | {"by": first.id})

    def _detail(self, slot: Slot, whose: Job | None, **more: int) -> dict[str, object]:
        detail: dict[str, object] = {"expected_start_at": slot.at, "type": slot.gang.type, "needs": slot.gang.count}
        return detail | more | ({"freed_by": whose.id} if whose else {})
