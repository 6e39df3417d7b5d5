"""Strict first in, first out, with gangs of one size.

Objective: none; the queue order decides. Constraints: a job starts only when all before it in its partition have
started, on all GPUs of its gang at once, and is never resized. A job that only a limit blocks does not delay others.
The common baseline of cluster schedulers (f-scheduling thesis, section 2).
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field

from scheduling.capacity.cluster_view import RoundView, view
from scheduling.capacity.free_capacity import FreeCapacity
from scheduling.domain import Allocation, Gang, Job, Reason, Snapshot
from scheduling.domain.reason_codes import ReasonCode
from scheduling.domain.wording import words
from scheduling.policies.base import Parameters as BaseParameters
from scheduling.policies.capabilities import Answer, Capabilities


class Parameters(BaseParameters):
    gang: Literal["min", "max"] = Field(
        default="min",
        description="Which of a job's own limits is its gang. A job without a maximum always uses its minimum.",
    )


class FifoGang:
    name: ClassVar[str] = "fifo_gang"
    title: ClassVar[str] = "First in, first out"
    Parameters: ClassVar[type[BaseParameters]] = Parameters
    capabilities = Capabilities(Answer.COUNTS, strict_order=True)

    def __init__(self, parameters: Any = None) -> None:
        self.parameters: Parameters = parameters if isinstance(parameters, Parameters) else Parameters()

    def allocate(self, snapshot: Snapshot) -> Allocation:
        field = view(snapshot)
        free_capacity = FreeCapacity(snapshot, field)
        reasons = dict(field.reasons)
        waits: dict[str, Job] = {}  # the first that does not fit, by partition
        for job in field.queued:
            first = waits.get(job.partition)
            if first is not None:
                text = f"#{first.number} is ahead and does not fit yet; this job starts after it."
                reasons[job.id] = Reason(ReasonCode.BEHIND, text, {"by": first.id})
                continue
            sizes = self.start_sizes(field, job)
            over = free_capacity.over_limit(job, sizes)
            if over is not None:
                reasons[job.id] = over
                continue
            gang = _fastest(field, job, sizes, free_capacity)
            if gang is None:
                reasons[job.id] = free_capacity.no_room(job, sizes)
                if sizes:  # a job that can never run here blocks no other
                    waits[job.partition] = job
                continue
            free_capacity.give(job, gang)
            text = f"All before it have started and enough GPUs were free, so it starts on {words(gang)}."
            reasons[job.id] = Reason(ReasonCode.STARTED, text)
        for job in field.running:
            reasons[job.id] = Reason(
                ReasonCode.KEEPS, "This policy never resizes a job; it keeps its GPUs until it ends."
            )
        return Allocation(
            counts=free_capacity.counts, reasons=reasons, figures={"free_gpus": float(sum(free_capacity.free.values()))}
        )

    def start_sizes(self, field: RoundView, job: Job) -> dict[str, int]:
        """The gang on each type that can run the job."""
        whole = self.parameters.gang == "max" and job.max_gpus is not None
        return {name: span.high if whole else span.low for name, span in field.spans(job).items()}


def _fastest(field: RoundView, job: Job, sizes: dict[str, int], free_capacity: FreeCapacity) -> Gang | None:
    """The fastest type on which the whole gang is free now and within limits."""
    gangs = [Gang(name, n) for name, n in sizes.items() if n <= free_capacity.free[name]]
    fits = [gang for gang in gangs if free_capacity.allows(job, gang)]
    return max(fits, key=lambda gang: field.steps_per_s(job, gang), default=None)
