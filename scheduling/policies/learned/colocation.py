"""Which jobs share GPUs, as a trained network decides GPU by GPU, and why other jobs wait."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from scheduling.capacity.node_capacity import UNBOUNDED, Demand, NodeCapacity
from scheduling.domain import WHOLE, Job, Node, Reason
from scheduling.domain.reason_codes import ReasonCode
from scheduling.domain.wording import span
from scheduling.policies.learned.images import (
    Choices,
    Placed,
    Sight,
    constant,
    first_short,
    sight,
    stretched,
    turns_s,
    usage_of,
)
from scheduling.policies.learned.starvation import Waiting

if TYPE_CHECKING:
    from scheduling.policies.learned.base import LearnedPolicy

#: Reasons of fractional jobs that the network, or expected use, keeps off GPUs with enough free capacity. The most GPUs
#: considered in a round, shared ones first; and how many of them may be the emptiest of all.
_MOST_DEVICES, _EMPTIEST = 128, 32
#: How many queued jobs enter the mean length.
_MEAN_OF = 32
#: Length of a run if neither steps nor a history tell it.
_UNKNOWN_S = 3_600.0
#: Why a job is not placed on a GPU; later ones are more specific if GPUs differ.
_BEHIND, _CAPACITY, _COMPANY = range(3)
_NAMES = {"gpu": "GPU time", "gpu_memory": "GPU memory", "gpu_cores": "room on its cores", "pcie": "PCIe throughput"}


class ColocationSearch:
    """`holding`: jobs of each GPU, by number. Books in `node_capacity`; all queued jobs here are fractional."""

    def __init__(
        self,
        policy: LearnedPolicy,
        node_capacity: NodeCapacity,
        holding: Mapping[int, Sequence[Job]],
        waiting: Sequence[Waiting],
    ) -> None:
        self.policy, self.node_capacity, self.holding, self.waiting = policy, node_capacity, holding, list(waiting)
        self.choices: Choices = policy.model.choices
        self.found: dict[str, tuple[int, ...]] = {}
        self._mean_s: float | None = None  # of queued jobs
        self._here: dict[int, list[Placed]] = {}  # of the considered GPUs
        self._beside: dict[int, list[Job]] = {}
        self._turns: dict[int, float] = {}  # by GPU, of jobs that hold it
        self._short: dict[int, list[tuple[str, float]]] = {}  # by GPU, of the jobs considered last
        #: By job, why it is not placed on which GPU, which jobs were considered with it, and its index among them.
        self._notes: dict[str, tuple[int, int, Sequence[Placed], int]] = {}

    def start(self, one: Waiting) -> bool:
        """Place the job before all others, where it fits now. If it fits nowhere, this search drops it."""
        for device in _devices(self.node_capacity, [one]):
            self._fill(device, one)
            if one.job.id in self.found:
                return True
        self.waiting.remove(one)
        return False

    def run(self) -> None:
        for device in _devices(self.node_capacity, self.waiting):
            self._fill(device, None)
            if not self.waiting:
                break

    def _fill(self, device: int, first: Waiting | None) -> None:
        """Only for jobs behind `first`, or without it."""
        row, column = self.node_capacity.place[device]
        if device not in self._here:
            self._beside[device] = list(self.holding.get(device, ()))
            self._here[device] = [self.placed(job, device) for job in self._beside[device]]
        here, beside = self._here[device], self._beside[device]
        while True:
            left = [one for one in self.waiting if _fits(self.node_capacity, one.demand, row, column)]
            if first is not None:
                left = [first, *(one for one in left if one is not first)] if first in left else []
            shown = left[: self.choices.slots]
            if not shown:
                return
            runs = [self.placed(one.job, device) for one in shown]
            seen = self._see(device, here, runs, [one.demand for one in shown], len(left), only_first=first is not None)
            action = int(seen.legal[0]) if len(seen.legal) == 1 else self.policy.pick(seen)
            if action == 0:
                if first is None:
                    self._note(device, left, runs, seen)
                return
            taken = [n for n in range(len(shown)) if self.choices.members()[action, n]]
            for number in taken:
                self.node_capacity.book(shown[number].demand, (device,))
                self.found[shown[number].job.id] = (device,)
                here.append(runs[number])
                beside.append(shown[number].job)
            self.waiting = [one for one in self.waiting if one.job.id not in self.found]
            first = first if first in self.waiting else None

    def _see(
        self,
        device: int,
        here: Sequence[Placed],
        runs: Sequence[Placed],
        demands: Sequence[Demand],
        count: int,
        *,
        only_first: bool,
    ) -> Sight:
        row, column = self.node_capacity.place[device]
        room = _room(self.node_capacity, row, column, demands, self.choices)
        if only_first:
            room[1:] &= self.choices.members()[1:, 0] > 0
        if self._mean_s is None:
            lengths = [self.placed(one.job, device).usage.duration_s for one in self.waiting[:_MEAN_OF]]
            self._mean_s = float(np.mean(lengths))
        wishes = self.policy.parameters
        return sight(
            here, runs, count - len(runs), self.choices, self.policy.bounds, wishes.unslowed_worth, self._mean_s, room
        )

    def placed(self, job: Job, device: int) -> Placed:
        """Completed part of the run, by steps."""
        node = self.node_capacity.nodes[self.node_capacity.place[device][0]]
        curve, total = job.curves.get(node.type), job.done_steps + job.remaining_steps
        speed = curve.at(max(1, len(job.gpu_ids))) if curve else 0.0
        length = total / speed if speed > 0 and total > 0 else 0.0
        if job.history is not None:
            usage = usage_of(job.history, self.policy.profile)
            usage = stretched(usage, length) if length and abs(length - usage.duration_s) > 1e-3 else usage
        else:
            share = min(1.0, job.gpu_milli / WHOLE)
            memory = job.gpu_memory_mib / node.gpu_memory_mib if job.gpu_memory_mib and node.gpu_memory_mib else share
            usage = constant(share, min(1.0, memory), length or _UNKNOWN_S)
        return Placed(usage, usage.duration_s * (job.done_steps / total if total > 0 else 0.0))

    def left_s(self, gpu: int) -> float:
        """For scheduling.policies.learned.starvation.Ends."""
        return max((self._left_s(job, gpu) for job in self.holding.get(gpu, ())), default=0.0) + self._turns_s(gpu)

    def users(self, node: Node) -> list[tuple[float, int, int]]:
        """For scheduling.policies.learned.starvation.Ends."""
        there = {job.id: (job, gpu) for gpu in node.gpu_ids for job in self.holding.get(gpu, ())}
        return [
            (self._left_s(job, gpu) + self._turns_s(gpu), job.cpu_milli, job.memory_mib) for job, gpu in there.values()
        ]

    def _turns_s(self, gpu: int) -> float:
        """How long jobs on the GPU will have waited for their turns."""
        if gpu not in self._turns:
            self._turns[gpu] = turns_s([self.placed(job, gpu) for job in self.holding.get(gpu, ())])
        return self._turns[gpu]

    def _left_s(self, job: Job, device: int) -> float:
        known = job.history is not None or job.done_steps + job.remaining_steps > 0
        return self.placed(job, device).left_s if known else float("inf")

    # Why other jobs wait ---------------------------------------------------------------------------

    def _note(self, device: int, left: Sequence[Waiting], runs: Sequence[Placed], seen: Sight) -> None:
        legal, alone = set(seen.legal.tolist()), _alone(self.choices)
        for number, one in enumerate(left):
            why = _BEHIND if number >= len(runs) else _COMPANY if alone[number] in legal else _CAPACITY
            if why >= self._notes.get(one.job.id, (why,))[0]:
                self._notes[one.job.id] = why, device, runs, number

    def reasons(self) -> dict[str, Reason]:
        """Reasons of jobs that wait although some GPU has enough free capacity."""
        left = [one.job.id for one in self.waiting if one.job.id in self._notes]
        return {key: self._reason(*self._notes[key]) for key in left}

    def _reason(self, why: int, device: int, runs: Sequence[Placed], number: int) -> Reason:
        node, names = self.node_capacity.nodes[self.node_capacity.place[device][0]].name, _names(self._beside[device])
        again_s = self.policy.parameters.look_again_s
        if why == _BEHIND:
            return held_back(f"It is behind the first {self.choices.slots} that may go to {node}.", again_s)
        if why == _COMPANY:
            text = (
                f"It would fit beside {names} on {node}, but leaving them alone, or another combination, is worth more."
            )
            return held_back(text, again_s, node=node)
        if device not in self._short:
            self._short[device] = first_short(self._here[device], runs, self.policy.bounds)
        resource, in_s = self._short[device][number]
        when = "now" if in_s <= 0 else f"in {span(in_s)}"
        text = f"By expected use there would be too little {_NAMES[resource]} {when} beside {names} on {node}."
        return held_back(text, again_s, node=node, short_of=resource)


def held_back(text: str, look_again_s: float, **detail: Any) -> Reason:
    return Reason(ReasonCode.HELD_BACK, f"{text} It is considered again within {look_again_s:g} s.", detail)


def _names(jobs: Sequence[Job]) -> str:
    numbers = [f"#{job.number}" for job in jobs[:3]]
    if len(jobs) > 3:
        numbers.append(f"{len(jobs) - 3} more")
    return " and ".join([", ".join(numbers[:-1]), numbers[-1]] if len(numbers) > 1 else numbers)


@cache
def _alone(choices: Choices) -> tuple[int, ...]:
    """By slot, the action that places only its job."""
    members = choices.members()
    return tuple(int(np.flatnonzero((members.sum(axis=1) == 1) & (members[:, n] > 0))[0]) for n in range(choices.slots))


def _devices(node_capacity: NodeCapacity, waiting: Sequence[Waiting]) -> list[int]:
    """Devices with room for one of the jobs: shared ones first, the fullest of them first."""
    fits = np.zeros(node_capacity.gpu.shape, dtype=bool)
    for demand in {one.demand for one in waiting}:
        rows = np.zeros(len(node_capacity.nodes), dtype=bool)
        rows[node_capacity.fitting(demand)] = True
        fits |= node_capacity.devices(demand) & rows[:, None]
    rows, columns = np.nonzero(fits)
    order = np.argsort(node_capacity.gpu[rows, columns], kind="stable")
    if len(order) > _MOST_DEVICES:
        order = np.append(order[: _MOST_DEVICES - _EMPTIEST], order[-_EMPTIEST:])
    places = zip(rows[order].tolist(), columns[order].tolist(), strict=True)
    return [node_capacity.nodes[row].gpu_ids[column] for row, column in places]


def _fits(node_capacity: NodeCapacity, demand: Demand, row: int, column: int) -> bool:
    kind, gpu = node_capacity.nodes[row].type, node_capacity.nodes[row].gpu_ids[column]
    return (
        (not demand.types or kind in demand.types)
        and gpu not in demand.excluded
        and bool(
            node_capacity.gpu[row, column] >= demand.milli
            and node_capacity.gpu_memory[row, column] >= demand.gpu_memory
        )
        and bool(node_capacity.cpu[row] >= demand.cpu and node_capacity.memory[row] >= demand.memory)
    )


def _room(node_capacity: NodeCapacity, row: int, column: int, demands: Sequence[Demand], choices: Choices) -> Any:
    """By action, whether its jobs' requests are free on the device and its node."""
    asked = np.zeros((choices.slots, 4))
    for number, demand in enumerate(demands):
        asked[number] = demand.milli, demand.gpu_memory, demand.cpu, demand.memory
    free = (
        node_capacity.gpu[row, column],
        node_capacity.gpu_memory[row, column],
        node_capacity.cpu[row],
        node_capacity.memory[row],
    )
    return (choices.members() @ asked <= np.minimum(np.array(free), UNBOUNDED)).all(axis=1)
