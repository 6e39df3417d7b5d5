"""Base of packing policies: one pass over the queue places each job on one node, or lets it wait.

Running jobs keep their devices until they end. A job that does not fit does not block others, unless `strict`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from pydantic import Field

from scheduling.capacity.cluster_view import RoundView, view
from scheduling.capacity.free_capacity import gpu_memory, host_memory, no_type, processors, size
from scheduling.capacity.node_capacity import Demand, Ints, Mask, NodeCapacity
from scheduling.capacity.quota_headroom import QuotaHeadroom
from scheduling.domain import WHOLE, Allocation, Gang, Job, Reason, Snapshot, plain_type
from scheduling.domain.reason_codes import ReasonCode
from scheduling.domain.wording import words
from scheduling.errors import SolverError
from scheduling.policies.base import Parameters as BaseParameters
from scheduling.policies.capabilities import Answer, Capabilities

_TIMES = "\N{MULTIPLICATION SIGN}"
#: Key of these policies' memory.
MEMORY = "packing"


@dataclass(frozen=True, slots=True)
class Planned:
    """Decisions made together: devices by job, reasons of jobs that are not placed, and reserved devices with the
    demand that they are reserved for."""

    gpus: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    reasons: Mapping[str, Reason] = field(default_factory=dict)
    kept: tuple[Demand, tuple[int, ...]] | None = None


class Parameters(BaseParameters):
    """Parameters of policies that place one job at a time."""

    strict: bool = Field(default=False, description="No job starts before those ahead of it in the queue.")


class PackingPolicy(ABC):
    """Subclasses define `name`, `title` and `choose`."""

    name: ClassVar[str]
    title: ClassVar[str]
    Parameters: ClassVar[type[BaseParameters]] = Parameters
    capabilities = Capabilities(Answer.PLACEMENTS, places_gpu_parts=True)

    def __init__(self, parameters: Any = None) -> None:
        schema = type(self).Parameters
        self.parameters: Any = parameters if isinstance(parameters, schema) else schema()

    def allocate(self, snapshot: Snapshot) -> Allocation:
        field = view(snapshot)
        round_ = _Round(snapshot, field)
        self._place_all(snapshot, field, round_)
        return Allocation(
            placements=round_.placements,
            reasons=round_.reasons,
            memory={MEMORY: round_.memory} if round_.memory else {},
            figures={"free_gpus": float((round_.node_capacity.gpu == WHOLE).sum()), **round_.figures},
        )

    def _place_all(self, snapshot: Snapshot, field: RoundView, round_: _Round) -> None:
        node_capacity = round_.node_capacity
        strict = isinstance(self.parameters, Parameters) and self.parameters.strict
        memory = self.begin(snapshot, field, node_capacity)
        queue = self.order(field, field.queued)
        wanted = {job.id: demands for job in queue if (demands := round_.wanted(job))}
        try:
            planned = self.plan(snapshot, node_capacity, {key: demands[0] for key, demands in wanted.items()})
        except SolverError:  # then `choose` places all jobs
            planned, round_.figures = Planned(), {"solver_failed": 1.0}
        round_.left_out = planned.reasons
        if planned.kept:
            node_capacity.keep(*planned.kept)
        ahead: Job | None = None
        for job in sorted(queue, key=lambda job: job.id not in planned.gpus):
            if ahead is not None:
                text = f"#{ahead.number} is ahead and does not fit yet; this job starts after it."
                round_.reasons[job.id] = Reason(ReasonCode.BEHIND, text, {"by": ahead.id})
                continue
            for demand in round_.wanted(job):
                if demand in round_.failed:
                    continue
                gpus = self._place(node_capacity, demand, planned.gpus.get(job.id), memory)
                if gpus is not None:
                    round_.start(job, demand, gpus)
                    break
                round_.failed[demand] = self.why_not(node_capacity, demand)
            else:
                blocks = round_.explain(job)
                ahead = job if strict and blocks else None
        round_.memory = self.end(memory)

    def _place(
        self, node_capacity: NodeCapacity, demand: Demand, planned: tuple[int, ...] | None, memory: Any
    ) -> tuple[int, ...] | None:
        """As planned, if there still is room; else on one node; on several if no node is large enough."""
        rows = node_capacity.fitting(demand)
        fits = planned is not None and len(planned) == demand.count and node_capacity.place[planned[0]][0] in rows
        if planned and fits and node_capacity.has_room(demand, planned):
            return planned
        if len(rows):
            return self.choose(node_capacity, demand, rows, memory)
        return node_capacity.across(demand) if demand.count > 1 else None

    def plan(self, snapshot: Snapshot, node_capacity: NodeCapacity, wanted: Mapping[str, Demand]) -> Planned:
        """Place jobs of the queue, in its order; `choose` places the others.

        Raises SolverError: then `choose` places all jobs.
        """
        return Planned()

    def begin(self, snapshot: Snapshot, field: RoundView, node_capacity: NodeCapacity) -> Any:
        """The state that `choose` gets with each job of this round."""
        return None

    def end(self, memory: Any) -> dict[str, Any]:
        """What the next round finds through `remembered`."""
        return {}

    def order(self, field: RoundView, queue: Sequence[Job]) -> Sequence[Job]:
        return queue

    def why_not(self, node_capacity: NodeCapacity, demand: Demand) -> Reason:
        """Why a job with this demand was not placed."""
        return no_room(node_capacity, demand)

    @abstractmethod
    def choose(self, node_capacity: NodeCapacity, demand: Demand, rows: Ints, memory: Any) -> tuple[int, ...]:
        """Devices of one of the nodes `rows`, all of which have room."""


class _Round:
    """The starts of a round, and why other jobs do not start."""

    def __init__(self, snapshot: Snapshot, field: RoundView) -> None:
        self.field, self.node_capacity = field, NodeCapacity(snapshot, (*field.pinned, *field.running))
        self.headroom = QuotaHeadroom(field)
        self.placements = {job.id: job.gpu_ids for job in field.running}
        self.reasons = dict(field.reasons)
        self.memory: dict[str, Any] = {}
        self.figures: dict[str, float] = {}
        self.left_out: Mapping[str, Reason] = {}
        self._demands: dict[str, list[Demand]] = {}
        self.failed: dict[Demand, Reason] = {}  # room only shrinks within a round
        for job in field.running:
            self.reasons[job.id] = Reason(
                ReasonCode.KEEPS, "This policy never moves a job; it keeps its GPUs until it ends."
            )
            if job.gang is not None:
                self.headroom.book(job, job.gang)

    def wanted(self, job: Job) -> list[Demand]:
        """The gangs that limits allow, the smallest first."""
        if not job.limits:
            return self._every(job)
        found = []
        for demand in self._every(job):
            types = [kind for kind in demand.types if self.headroom.over(job, Gang(kind, demand.count)) is None]
            if types:
                found.append(replace(demand, types=tuple(types)))
        return found

    def _every(self, job: Job) -> list[Demand]:
        known = self._demands.get(job.id)
        if known is None:
            known = self._demands[job.id] = demands_of(self.field, job)
        return known

    def start(self, job: Job, demand: Demand, gpus: tuple[int, ...]) -> None:
        self.node_capacity.book(demand, gpus)
        node = self.node_capacity.nodes[self.node_capacity.place[gpus[0]][0]]
        gang = Gang(node.type, len(gpus))
        self.headroom.book(job, gang)
        self.placements[job.id] = gpus
        where = node.name if set(gpus) <= set(node.gpu_ids) else "several nodes"
        self.reasons[job.id] = Reason(
            ReasonCode.STARTED, f"There is room on {where}, so it starts there on {part(job, gang)}."
        )

    def explain(self, job: Job) -> bool:
        """Why the job waits, and whether it waits for room."""
        every = self._every(job)
        if not every:
            self.reasons[job.id] = no_type(job)
            return False
        gangs = [Gang(kind, demand.count) for demand in every for kind in demand.types]
        over = self.headroom.reason(job, gangs)
        self.reasons[job.id] = over or self.left_out.get(job.id) or self._short(job)
        return over is None

    def _short(self, job: Job) -> Reason:
        """What the least gang lacks, among nodes that are large enough."""
        reasons = [self.failed[demand] for demand in self.wanted(job)]
        return next((reason for reason in reasons if reason.token != ReasonCode.TOO_LARGE), reasons[0])


def remembered(snapshot: Snapshot) -> Mapping[str, Any]:
    found: Mapping[str, Any] = snapshot.memory.get(MEMORY, {})
    return found


def part(job: Job, gang: Gang) -> str:
    return words(gang) if job.gpu_milli == WHOLE else f"{job.gpu_milli / 10:g} % of a {gang.type}"


def demands_of(field: RoundView, job: Job) -> list[Demand]:
    """The least gangs, by size, each on the types for which it is the least."""
    types: dict[int, list[str]] = {}
    for kind, span in field.spans(job).items():
        types.setdefault(span.low, []).append(kind)
    plain, excluded = Demand.of(job), tuple(sorted(job.excluded_gpus))
    return [replace(plain, count=n, types=tuple(kinds), excluded=excluded) for n, kinds in sorted(types.items())]


def no_room(node_capacity: NodeCapacity, demand: Demand) -> Reason:
    """What is missing on the nodes that the job may use."""
    rows, several = node_capacity.allowed(demand), demand.count > 1
    mine = [kind for kind in node_capacity.types if not demand.types or kind in demand.types]
    gpu = "GPU" if len(mine) == len(node_capacity.types) else " or ".join(dict.fromkeys(map(plain_type, mine)))
    large = rows & node_capacity.holds_when_empty(demand)
    if not large.any():
        text = f"No node with a {gpu} that it may use now has as many processors, or as much memory, as it asks for."
        return Reason(ReasonCode.TOO_LARGE, text, {"types": list(dict.fromkeys(map(plain_type, mine)))})
    if several and node_capacity.size[large].max() < demand.count:
        return _no_room_across(node_capacity, demand, large, gpu)
    detail = {"gpus": demand.count, "gpu_milli": demand.milli, "gpu_memory_mib": demand.gpu_memory}
    free = node_capacity.devices(replace(demand, gpu_memory=0)) & rows[:, None]
    what = f"{demand.milli / 10:g} % of a {gpu}" if demand.milli < WHOLE else f"{demand.count} {_TIMES} {gpu}"
    if not (free.sum(axis=1) >= demand.count).any():
        text = (
            f"No node has {what} free."
            if several or demand.milli == WHOLE
            else f"No {gpu} has {demand.milli / 10:g} % free."
        )
        return Reason(ReasonCode.RESOURCES, text, detail)
    free &= (free.sum(axis=1) >= demand.count)[:, None]
    enough = free & (node_capacity.gpu_memory >= demand.gpu_memory)
    if not (enough.sum(axis=1) >= demand.count).any():
        row, column = np.unravel_index(np.argmax(np.where(free, node_capacity.gpu_memory, -1)), free.shape)
        most, node = size(int(node_capacity.gpu_memory[row, column])), node_capacity.nodes[int(row)].name
        takes = gpu_memory(demand.gpu_memory)
        text = f"Where {what} is free it takes {takes}, and at most {most} of it is left, on {node}."
        return Reason(ReasonCode.RESOURCES, text, detail)
    nodes = enough.sum(axis=1) >= demand.count
    short = [
        f"{name(int(left[nodes].max()))} where it asks for {name(wanted)}"
        for name, left, wanted in (
            (processors, node_capacity.cpu, demand.cpu),
            (host_memory, node_capacity.memory, demand.memory),
        )
        if not (left[nodes] >= wanted).any()
    ]
    text = (
        f"Nodes with {what} free have at most {' and '.join(short)}."
        if short
        else (f"No node with {what} free has both the processors and the memory that it asks for.")
    )
    return Reason(ReasonCode.RESOURCES, text, detail | {"cpu_milli": demand.cpu, "memory_mib": demand.memory})


def _no_room_across(node_capacity: NodeCapacity, demand: Demand, large: Mask, gpu: str) -> Reason:
    """`large`: the nodes that are large enough for the demand on each node, by row."""
    what = f"{demand.count} {_TIMES} {gpu}"
    if (
        not node_capacity.multi_node
        or max(
            node_capacity.size[large & (node_capacity.kind == kind)].sum() for kind in range(len(node_capacity.types))
        )
        < demand.count
    ):
        text = f"No node that has what it asks for of each has {what}, nor have they together."
        return Reason(ReasonCode.TOO_LARGE, text, {"gpus": demand.count})
    beside = " with the processors and the memory that it asks for of each" if demand.cpu or demand.memory else ""
    ready = large & (node_capacity.cpu >= demand.cpu) & (node_capacity.memory >= demand.memory)
    free = node_capacity.devices(demand).sum(axis=1)
    most = max(int(free[ready & (node_capacity.kind == kind)].sum()) for kind in range(len(node_capacity.types)))
    text = f"It needs {what} over several nodes, and nodes{beside} have {most} of one type free."
    return Reason(ReasonCode.RESOURCES, text, {"gpus": demand.count, "free": most})
