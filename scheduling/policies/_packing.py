"""What packing policies share: the queue is walked once, and each job is put on one node or waits.

Jobs that hold devices keep them to their end. Whoever does not fit holds up nobody, unless `strict`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from pydantic import Field

from scheduling.domain import WHOLE, Allocation, Gang, Job, Reason, Snapshot
from scheduling.policies._limits import Rooms
from scheduling.policies._stock import no_type
from scheduling.policies._view import View, view, words
from scheduling.policies._yard import Demand, Ints, Yard
from scheduling.policies.base import Parameters as BaseParameters

#: The key of what these policies remember.
MEMORY = "packing"


class Parameters(BaseParameters):
    strict: bool = Field(default=False, description="Nobody starts before those ahead of it in the queue.")


class PackingPolicy(ABC):
    """Subclasses give `name`, `title` and `choose`."""

    name: ClassVar[str]
    title: ClassVar[str]
    Parameters: ClassVar[type[BaseParameters]] = Parameters
    elastic: ClassVar[bool] = False
    timed: ClassVar[bool] = False
    #: Places parts of devices itself (scheduling.sharing).
    shares_gpus: ClassVar[bool] = True

    def __init__(self, parameters: Any = None) -> None:
        schema = type(self).Parameters
        self.parameters: Any = parameters if isinstance(parameters, schema) else schema()

    def allocate(self, snapshot: Snapshot) -> Allocation:
        field = view(snapshot)
        yard, rooms = Yard(snapshot, (*field.fixed, *field.running)), Rooms(field)
        placements, reasons = {job.id: job.gpu_ids for job in field.running}, dict(field.reasons)
        for job in field.running:
            reasons[job.id] = Reason("keeps", "This policy never moves a job; it keeps its GPUs to its end.")
            if job.gang is not None:
                rooms.book(job, job.gang)
        memory = self.begin(snapshot, yard)
        queue = self.order(field.queued)
        wanted = {job.id: demand for job in queue if (demand := demand_of(field, job)) is not None}
        planned = self.plan(snapshot, yard, wanted)
        ahead: Job | None = None
        failed = dict[Demand, Reason]()  # in this round: room only gets less
        for job in sorted(queue, key=lambda job: job.id not in planned):
            if ahead is not None:
                text = f"#{ahead.number} is ahead and does not fit yet; this job starts after it."
                reasons[job.id] = Reason("behind", text, {"by": ahead.id})
                continue
            demand = wanted.get(job.id)
            if demand is None:
                reasons[job.id] = no_type(job)
                continue
            gangs = [Gang(kind, demand.count) for kind in demand.types]
            over = rooms.reason(job, gangs)
            if over is not None:
                reasons[job.id] = over
                continue
            if job.limits:
                open_to = tuple(gang.type for gang in gangs if rooms.over(job, gang) is None)
                demand = replace(demand, types=open_to)
            known = failed.get(demand)
            gpus = None if known else self._place(yard, demand, planned.get(job.id), memory, wide=field.multi_node)
            if gpus is None:
                reasons[job.id] = failed[demand] = known or no_room(yard, demand)
                ahead = job if self.parameters.strict else None
                continue
            yard.book(demand, gpus)
            node = yard.nodes[yard.place[gpus[0]][0]]
            gang = Gang(node.type, len(gpus))
            rooms.book(job, gang)
            placements[job.id] = gpus
            where = node.name if set(gpus) <= set(node.gpu_ids) else "several nodes"
            reasons[job.id] = Reason("started", f"There is room on {where}, so it starts there on {part(job, gang)}.")
        free = float((yard.gpu == WHOLE).sum())
        kept = self.end(memory)
        return Allocation(
            placements=placements,
            reasons=reasons,
            memory={MEMORY: kept} if kept else {},
            figures={"free_gpus": free},
        )

    def _place(
        self, yard: Yard, demand: Demand, planned: tuple[int, ...] | None, memory: Any, *, wide: bool
    ) -> tuple[int, ...] | None:
        """As planned, where there still is room; else on one node; what no node is large enough for, on several."""
        rows = yard.fitting(demand)
        if planned and yard.place[planned[0]][0] in rows and yard.has_room(demand, planned):
            return planned
        if len(rows):
            return self.choose(yard, demand, rows, memory)
        return yard.across(demand) if wide and demand.count > 1 else None

    def plan(self, snapshot: Snapshot, yard: Yard, wanted: Mapping[str, Demand]) -> Mapping[str, tuple[int, ...]]:
        """Devices for jobs of the queue, in its order, decided together; `choose` has the others."""
        return {}

    def begin(self, snapshot: Snapshot, yard: Yard) -> Any:
        """What `choose` is given with each job of this round."""
        return None

    def end(self, memory: Any) -> dict[str, Any]:
        """What the next round finds by `remembered`."""
        return {}

    def order(self, queue: Sequence[Job]) -> Sequence[Job]:
        return queue

    @abstractmethod
    def choose(self, yard: Yard, demand: Demand, rows: Ints, memory: Any) -> tuple[int, ...]:
        """Devices of one of the nodes `rows`, on which it fits."""


def remembered(snapshot: Snapshot) -> Mapping[str, Any]:
    found: Mapping[str, Any] = snapshot.memory.get(MEMORY, {})
    return found


def part(job: Job, gang: Gang) -> str:
    return words(gang) if job.gpu_milli == WHOLE else f"{job.gpu_milli / 10:g} % of a {gang.type}"


def demand_of(field: View, job: Job) -> Demand | None:
    """Its smallest gang, on the types that can run that; None where none can."""
    spans = field.spans(job)
    if not spans:
        return None
    types = tuple(kind for kind, span in spans.items() if span.low == spans.least)
    return replace(Demand.of(job), count=spans.least, types=types, excluded=tuple(sorted(job.excluded_gpus)))


def no_room(yard: Yard, demand: Demand) -> Reason:
    """What it is short of, on the nodes that it may use."""
    rows = yard.allowed(demand)
    several = "GPUs" if demand.count > 1 else "GPU"
    what = f"{demand.count} {several}" if demand.milli == WHOLE else f"{demand.milli / 10:g} % of one GPU"
    devices = (yard.devices(demand).sum(axis=1) >= demand.count) & rows
    if not devices.any():
        text = f"No node has {what} free on one machine."
        return Reason("resources", text, {"gpus": demand.count, "gpu_milli": demand.milli})
    short = [
        name
        for name, free, wanted in (("processors", yard.cpu, demand.cpu), ("memory", yard.memory, demand.memory))
        if not (free[devices] >= wanted).any()
    ]
    text = (
        f"Nodes with {what} free have too little {' and '.join(short) or 'of processors and memory together'} for it."
    )
    return Reason("resources", text, {"cpu_milli": demand.cpu, "memory_mib": demand.memory})
