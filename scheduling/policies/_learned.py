"""What learned co-placement policies share: parts of GPUs are placed as a trained network says, GPU by GPU.

For each GPU that takes parts the first jobs of the queue that may go there fill the slots; of their combinations those
that would pass the device's time, memory, cores or PCIe at any moment are left out, those that earn most at once are
weighed, and the best is placed, until holding is best. For the first of those that have waited for `patience_s` the GPU
that will be empty soonest is kept: no part of it goes to others. `unslowed_worth` says how much it is to leave somebody
alone. A job without a history is taken to use its share and its memory constantly. Memory is kept also where sharing
makes runs take up to `stretch` times as long. What asks for whole GPUs goes to the first node that fits, before the
parts where it is ahead of all of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from pydantic import Field, field_validator

from scheduling.domain import WHOLE, Allocation, Job, Node, Reason, Snapshot
from scheduling.errors import InvalidInput
from scheduling.learning.images import MOST_WORTH, Choices, Placed, Profile, Sight, Usage, sight, usage_of
from scheduling.learning.network import Model, load
from scheduling.policies._packing import PackingPolicy
from scheduling.policies._view import View
from scheduling.policies._yard import UNBOUNDED, Demand, Ints, Yard
from scheduling.policies.base import Parameters as BaseParameters

MODELS = Path(__file__).parent / "models"
#: GPUs that are looked at in a round: those that are shared first.
_MOST_DEVICES = 128
#: Of those that wait, whose mean length is taken.
_MEAN_OF = 32
#: Where neither steps nor a history say how long a run is.
_UNKNOWN_S = 3_600.0


class Parameters(BaseParameters):
    model: str = Field(
        default="",
        max_length=500,
        description="Path of a file that train-placement wrote; empty: the one that comes with the policy.",
    )
    stretch: float = Field(
        default=1.4, ge=1.0, le=10.0, description="Memory suffices though runs that share take so many times as long."
    )
    unslowed_worth: float = Field(
        default=0.2,
        ge=0.0,
        le=MOST_WORTH,
        description="What it is worth to leave a job alone on its GPU, in mean run lengths: 0 packs tightly.",
    )
    look_again_s: float = Field(
        default=30.0,
        ge=1.0,
        le=3_600.0,
        description="Seconds after which jobs that were held back are looked at again.",
    )
    patience_s: float = Field(
        default=14_400.0,
        ge=0.0,
        le=2_592_000.0,
        description="Seconds of waiting after which the GPU that will be empty soonest is kept for a part of a GPU.",
    )

    @field_validator("model")
    @classmethod
    def _can_be_read(cls, value: str) -> str:
        if value:
            try:
                load(Path(value))
            except InvalidInput as error:
                raise ValueError(str(error)) from None
        return value


class LearnedPolicy(PackingPolicy):
    """Subclasses give `name`, `title` and `profile`."""

    Parameters: ClassVar[type[BaseParameters]] = Parameters
    reads_histories: ClassVar[bool] = True
    profile: ClassVar[Profile]

    def __init__(self, parameters: Any = None) -> None:
        super().__init__(parameters)
        self.model: Model = load(Path(self.parameters.model) if self.parameters.model else MODELS / f"{self.name}.npz")

    def allocate(self, snapshot: Snapshot) -> Allocation:
        found = super().allocate(snapshot)
        if not any(reason.token == "held_back" for reason in found.reasons.values()):  # noqa: S105
            return found
        # Moments that all rounds agree on, so that wakes do not add up.
        every = self.parameters.look_again_s
        return replace(found, next_wake_at=(snapshot.now // every + 1) * every)

    def plan(self, snapshot: Snapshot, yard: Yard, wanted: Mapping[str, Demand]) -> Mapping[str, tuple[int, ...]]:
        parts = {key: demand for key, demand in wanted.items() if _is_part(demand)}
        if not parts:
            return {}
        trial, found = yard.copy(), dict[str, tuple[int, ...]]()
        for key, demand in wanted.items():
            if key in parts:
                break
            rows = trial.fitting(demand)
            if len(rows):
                found[key] = self.choose(trial, demand, rows, None)
                trial.book(demand, found[key])
        return found | self._parts(snapshot, trial, parts)

    def _parts(self, snapshot: Snapshot, yard: Yard, parts: Mapping[str, Demand]) -> dict[str, tuple[int, ...]]:
        jobs = {job.id: job for job in snapshot.jobs}
        holding: dict[int, list[Job]] = {}
        for job in sorted(snapshot.jobs, key=lambda job: job.number):
            for gpu in job.gpu_ids:
                holding.setdefault(gpu, []).append(job)
        waiting = [_Waiting(jobs[key], demand) for key, demand in parts.items()]
        found: dict[str, tuple[int, ...]] = {}
        devices = _devices(yard, waiting)
        if not devices:
            return found
        lengths = [self._placed(one.job, yard, devices[0]).usage.duration_s for one in waiting[:_MEAN_OF]]
        mean_s = float(np.mean(lengths))
        overdue = self._overdue(snapshot, yard, waiting, holding)
        first, kept = overdue or (None, -1)
        if overdue:
            devices = [kept, *(device for device in devices if device != kept)]
        for device in devices:
            placed = [self._placed(job, yard, device) for job in holding.get(device, ())]
            here = self._on(yard, device, waiting, placed, mean_s, first if device == kept else None)
            found |= {one.job.id: (device,) for one in here}
            waiting = [one for one in waiting if one.job.id not in found]
            if first is not None and device == kept and first in waiting:
                # What it asks for of the node is kept for it, too. It may go elsewhere at once.
                row, _ = yard.place[device]
                yard.cpu[row] -= first.demand.cpu
                yard.memory[row] -= first.demand.memory
            if not waiting:
                break
        return found

    def _overdue(
        self, snapshot: Snapshot, yard: Yard, waiting: Sequence[_Waiting], holding: Mapping[int, Sequence[Job]]
    ) -> tuple[_Waiting, int] | None:
        """(The first of the queue that has waited for too long and fits some GPU when that is empty; of these GPUs the
        one that will be empty soonest)."""
        for one in waiting:
            since = one.job.submitted_at if one.job.eligible_at is None else one.job.eligible_at
            if snapshot.now - since <= self.parameters.patience_s:
                continue
            ends = {
                device: max((self._left_s(job, yard, device) for job in holding.get(device, ())), default=0.0)
                for device, (row, column) in yard.place.items()
                if _suits(yard, one.demand, row, column) and _fits_when_empty(yard.nodes[row], one.demand)
            }
            if ends:
                return one, min(ends, key=ends.__getitem__)
        return None

    def _left_s(self, job: Job, yard: Yard, device: int) -> float:
        """How long it will go on; without end where nothing tells."""
        known = job.history is not None or job.done_steps + job.remaining_steps > 0
        return self._placed(job, yard, device).left_s if known else float("inf")

    def _on(
        self,
        yard: Yard,
        device: int,
        waiting: Sequence[_Waiting],
        placed: list[Placed],
        mean_s: float,
        first: _Waiting | None,
    ) -> list[_Waiting]:
        """Who of those that wait goes to the device; nobody before `first`, or without it."""
        choices, chosen = self.model.choices, list[_Waiting]()
        row, column = yard.place[device]
        while True:
            left = [one for one in waiting if one not in chosen and _fits(yard, one.demand, row, column)]
            if first is not None and first not in chosen:
                left = [first, *(one for one in left if one is not first)] if first in left else []
            shown = left[: choices.slots]
            if not shown:
                return chosen
            runs = [self._placed(one.job, yard, device) for one in shown]
            room = _room(yard, row, column, [one.demand for one in shown], choices)
            if first is not None and first not in chosen:
                room[1:] &= choices.members()[1:, 0] > 0
            seen = sight(
                placed,
                runs,
                len(left) - len(shown),
                choices,
                self.parameters.stretch,
                self.parameters.unslowed_worth,
                mean_s,
                room,
            )
            action = int(seen.legal[0]) if len(seen.legal) == 1 else self.pick(seen)
            if action == 0:
                return chosen
            for number, one in enumerate(shown):
                if choices.members()[action, number]:
                    yard.book(one.demand, (device,))
                    placed.append(runs[number])
                    chosen.append(one)

    def pick(self, seen: Sight) -> int:
        """The best of the actions."""
        return int(seen.actions[np.argmax(self.model.scores(seen.inputs))])

    def _placed(self, job: Job, yard: Yard, device: int) -> Placed:
        """How much of its run is done, by its steps."""
        node = yard.nodes[yard.place[device][0]]
        curve, total = job.curves.get(node.type), job.done_steps + job.remaining_steps
        speed = curve.at(1) if curve else 0.0
        length = total / speed if speed > 0 and total > 0 else 0.0
        if job.history is not None:
            usage = usage_of(job.history, self.profile)
            usage = usage.stretched_to(length) if length and abs(length - usage.duration_s) > 1e-3 else usage
        else:
            share = min(1.0, job.gpu_milli / WHOLE)
            memory = job.gpu_memory_mib / node.gpu_memory_mib if job.gpu_memory_mib and node.gpu_memory_mib else share
            usage = Usage(np.array([[share], [min(1.0, memory)], [share], [0.0]]), length or _UNKNOWN_S)
        return Placed(usage, usage.duration_s * (job.done_steps / total if total > 0 else 0.0))

    def _place(
        self, yard: Yard, demand: Demand, planned: tuple[int, ...] | None, memory: Any, *, wide: bool
    ) -> tuple[int, ...] | None:
        if planned is None and _is_part(demand):
            return None
        return super()._place(yard, demand, planned, memory, wide=wide)

    def why_not(self, yard: Yard, demand: Demand) -> Reason:
        if not _is_part(demand) or not len(yard.fitting(demand)):
            return super().why_not(yard, demand)
        text = (
            "Beside what runs it would pass what a GPU has at some time, better company is expected, or the GPU is "
            f"kept for who has waited for long; it is looked at again within {self.parameters.look_again_s:g} s."
        )
        return Reason("held_back", text, {"gpu_milli": demand.milli})

    def choose(self, yard: Yard, demand: Demand, rows: Ints, memory: Any) -> tuple[int, ...]:
        return yard.tightest(int(rows[0]), demand)

    def order(self, field: View, queue: Sequence[Job]) -> Sequence[Job]:
        return queue


@dataclass(frozen=True, slots=True, eq=False)
class _Waiting:
    job: Job
    demand: Demand


def _is_part(demand: Demand) -> bool:
    return demand.milli < WHOLE and demand.count == 1


def _devices(yard: Yard, waiting: Sequence[_Waiting]) -> list[int]:
    """Those on which one of them has room: shared ones first, the fullest of them first."""
    fits = np.zeros(yard.gpu.shape, dtype=bool)
    for demand in {one.demand for one in waiting}:
        rows = np.zeros(len(yard.nodes), dtype=bool)
        rows[yard.fitting(demand)] = True
        fits |= yard.devices(demand) & rows[:, None]
    rows, columns = np.nonzero(fits)
    order = np.argsort(yard.gpu[rows, columns], kind="stable")[:_MOST_DEVICES]
    return [yard.nodes[row].gpu_ids[column] for row, column in zip(rows[order].tolist(), columns[order].tolist())]  # noqa: B905


def _suits(yard: Yard, demand: Demand, row: int, column: int) -> bool:
    kind, gpu = yard.nodes[row].type, yard.nodes[row].gpu_ids[column]
    return (not demand.types or kind in demand.types) and gpu not in demand.excluded


def _fits_when_empty(node: Node, demand: Demand) -> bool:
    asked = ((node.gpu_memory_mib, demand.gpu_memory), (node.cpu_milli, demand.cpu), (node.memory_mib, demand.memory))
    return all(there is None or wanted <= there for there, wanted in asked)


def _fits(yard: Yard, demand: Demand, row: int, column: int) -> bool:
    return (
        _suits(yard, demand, row, column)
        and bool(yard.gpu[row, column] >= demand.milli and yard.gpu_memory[row, column] >= demand.gpu_memory)
        and bool(yard.cpu[row] >= demand.cpu and yard.memory[row] >= demand.memory)
    )


def _room(yard: Yard, row: int, column: int, demands: Sequence[Demand], choices: Choices) -> Any:
    """By action: whether what its jobs ask for is free on the device and its node."""
    asked = np.zeros((choices.slots, 4))
    for number, demand in enumerate(demands):
        asked[number] = demand.milli, demand.gpu_memory, demand.cpu, demand.memory
    free = (yard.gpu[row, column], yard.gpu_memory[row, column], yard.cpu[row], yard.memory[row])
    return (choices.members() @ asked <= np.minimum(np.array(free), UNBOUNDED)).all(axis=1)
