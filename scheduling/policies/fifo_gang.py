"""Strict first in, first out, with gangs of one size.

Objective: none; the queue order decides. Constraints: a job starts only when the one before it has
started, on all GPUs of its gang at once, and is never resized. The common baseline of cluster
schedulers (f-scheduling thesis, section 2).
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field

from scheduling.domain import Allocation, Gang, Job, Reason, Snapshot
from scheduling.policies._view import View, present_gang, view, words
from scheduling.policies.base import Parameters as BaseParameters


class Parameters(BaseParameters):
    gang: Literal["min", "max"] = Field(
        default="min",
        description="Which of a job's own limits is its gang. A job without a maximum always uses its minimum.",
    )


class FifoGang:
    name: ClassVar[str] = "fifo_gang"
    title: ClassVar[str] = "First in, first out"
    Parameters: ClassVar[type[BaseParameters]] = Parameters
    elastic: ClassVar[bool] = False

    def __init__(self, parameters: Any = None) -> None:
        self.parameters: Parameters = parameters if isinstance(parameters, Parameters) else Parameters()

    def allocate(self, snapshot: Snapshot) -> Allocation:
        field = view(snapshot)
        counts, free = keep_present(snapshot, field)
        reasons: dict[str, Reason] = dict(field.reasons)
        first: Job | None = None
        for job in field.queued:
            if first is not None:
                reasons[job.id] = Reason(
                    "behind",
                    f"#{first.number} is ahead and does not fit yet; this job starts after it.",
                    {"by": first.id},
                )
                continue
            gang = self._gang(field, job, free)
            if gang is None:
                first, reasons[job.id] = job, no_room(field, job, free, self._size(field, job))
                continue
            counts[job.id] = gang
            free[gang.type] -= gang.count
            reasons[job.id] = Reason("started", f"It was first in the queue and enough GPUs were free for {words(gang)}.")
        for job in field.running:
            reasons[job.id] = Reason("keeps", "This policy never resizes a job; it keeps its GPUs to its end.")
        return Allocation(counts=counts, reasons=reasons, figures={"free_gpus": float(sum(free.values()))})

    def _size(self, field: View, job: Job) -> dict[str, int]:
        whole = self.parameters.gang == "max" and job.max_gpus is not None
        return {name: span.high if whole else span.low for name, span in field.spans(job).items()}

    def _gang(self, field: View, job: Job, free: dict[str, int]) -> Gang | None:
        """The fastest type on which the whole gang is free now."""
        gangs = [Gang(name, count) for name, count in self._size(field, job).items() if count <= free[name]]
        return max(gangs, key=lambda gang: field.steps_per_s(job, gang), default=None)


def keep_present(snapshot: Snapshot, field: View) -> tuple[dict[str, Gang], dict[str, int]]:
    """Every job that holds GPUs keeps them; what is then free, per type."""
    type_of = {gpu: node.type for node in snapshot.nodes for gpu in node.gpu_ids}
    counts, free = {}, dict(field.free)
    for job in (*field.fixed, *field.running):
        gang = present_gang(job, type_of)
        if gang is not None:
            counts[job.id] = gang
    for job in field.running:
        gang = counts.get(job.id)
        if gang is not None and gang.type in free:
            free[gang.type] = max(0, free[gang.type] - gang.count)
    return counts, free


def no_room(field: View, job: Job, free: dict[str, int], needs: dict[str, int]) -> Reason:
    """Why nothing fits: cause, number, way out."""
    if not needs:
        limit = ", ".join(job.types) or "any type here"
        return Reason(
            "no_type", f"No gang of {limit} in this cluster can run the job; change its types or its GPU limits."
        )
    name = min(needs, key=lambda kind: (needs[kind] - free[kind], kind))
    have = free[name]
    return Reason(
        "no_room",
        f"It needs {words(Gang(name, needs[name]))} and {have} {'is' if have == 1 else 'are'} free; "
        "it starts when enough are.",
        {"type": name, "needs": needs[name], "free": have},
    )
