"""Static partition: the cluster is divided into slots of n GPUs, each with one job until it ends.

Objective: none; the queue order decides. Constraints: at most one job in each slot, no re-allocation. The baseline of
the F-scheduling thesis, section 5.1.3.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, ClassVar

from pydantic import Field

from scheduling.capacity.cluster_view import RoundView, view
from scheduling.capacity.free_capacity import FreeCapacity, no_type
from scheduling.domain import Allocation, Gang, Job, Reason, Snapshot
from scheduling.domain.lazy_reasons import LazyReasons
from scheduling.domain.reason_codes import ReasonCode
from scheduling.domain.wording import counted, words
from scheduling.policies.base import Parameters as BaseParameters
from scheduling.policies.capabilities import Answer, Capabilities


class Parameters(BaseParameters):
    n: int = Field(
        default=1, ge=1, description="GPUs in a slot. A job that needs more never starts; one that may use fewer does."
    )


class StaticPartition:
    name: ClassVar[str] = "static_partition"
    title: ClassVar[str] = "Static partition"
    Parameters: ClassVar[type[BaseParameters]] = Parameters
    capabilities = Capabilities(Answer.COUNTS, runs_to_completion=True)

    def __init__(self, parameters: Any = None) -> None:
        self.parameters: Parameters = parameters if isinstance(parameters, Parameters) else Parameters()

    def allocate(self, snapshot: Snapshot) -> Allocation:
        field = view(snapshot)
        free_capacity = FreeCapacity(snapshot, field)
        slots = self._free_slots(snapshot, field, free_capacity)
        reasons = dict(field.reasons)
        left: dict[str, Job] = {}  # no slot is large enough, or none was left: the reasons stay the same
        for job in field.queued:
            if field.spans(job).least > self.parameters.n or not any(slots.values()):
                left[job.id] = job
                continue
            gang = self._gang(field, job, slots, free_capacity)
            if gang is None:
                reasons[job.id] = self._why_not(field, job, free_capacity)
                continue
            slots[gang.type] -= 1
            free_capacity.give(job, gang)
            text = f"A slot of {counted(self.parameters.n, 'GPU')} was free, so it starts on {words(gang)}."
            reasons[job.id] = Reason(ReasonCode.STARTED, text)
        for job in field.running:
            reasons[job.id] = Reason(
                ReasonCode.KEEPS, "Slots are fixed under this policy; the job keeps its GPUs until it ends."
            )
        figures = {"free_slots": float(sum(slots.values())), "free_gpus": float(sum(free_capacity.free.values()))}

        def tell(key: str) -> Reason:
            return reasons[key] if key in reasons else self._why_not(field, left[key], free_capacity)

        return Allocation(counts=free_capacity.counts, reasons=LazyReasons([*reasons, *left], tell), figures=figures)

    def _free_slots(self, snapshot: Snapshot, field: RoundView, free_capacity: FreeCapacity) -> dict[str, int]:
        """Slots are within nodes if n allows it. A larger gang, left by another policy, counts as several."""
        n, slots = self.parameters.n, Counter[str](dict.fromkeys(field.types, 0))
        for name in field.types:
            if n > field.largest[name]:
                slots[name] = field.total[name] // n if field.multi_node else 0
                continue
            for node in snapshot.nodes:
                if node.type == name and node.schedulable and not node.lost:
                    slots[name] += len(node.gpu_ids) // n
        for gang in free_capacity.counts.values():
            slots[gang.type] -= -(-gang.count // n)
        return {name: max(0, min(slots[name], free_capacity.free[name] // n)) for name in field.types}

    def _gang(self, field: RoundView, job: Job, slots: dict[str, int], free_capacity: FreeCapacity) -> Gang | None:
        """The fastest type with a free slot in which the job fits."""
        n = self.parameters.n
        gangs = [
            Gang(name, min(n, span.high))
            for name, span in field.spans(job).items()
            if span.low <= n and slots[name] > 0 and free_capacity.allows(job, Gang(name, min(n, span.high)))
        ]
        return max(gangs, key=lambda gang: field.steps_per_s(job, gang), default=None)

    def start_sizes(self, field: RoundView, job: Job) -> dict[str, int]:
        """GPUs of a slot that the job uses, on each type with a slot that is large enough."""
        n = self.parameters.n
        return {name: min(n, span.high) for name, span in field.spans(job).items() if span.low <= n}

    def _why_not(self, field: RoundView, job: Job, free_capacity: FreeCapacity) -> Reason:
        n, spans = self.parameters.n, field.spans(job)
        if not spans:
            return no_type(job)
        least = min(span.low for span in spans.values())
        if least > n:
            text = f"A slot has {counted(n, 'GPU')} and it needs at least {least}, so it cannot start with such slots."
            return Reason(ReasonCode.SLOT_TOO_SMALL, text, {"slot": n, "needs": least})
        over = free_capacity.over_limit(job, self.start_sizes(field, job))
        text = f"Every slot of {counted(n, 'GPU')} is taken; it starts when a job ends."
        return over or Reason(ReasonCode.NO_SLOT, text, {"slot": n})
