"""The fallback if a policy's solver fails: no job moves, and queued jobs start on their minimum."""

from __future__ import annotations

from scheduling.capacity.cluster_view import view
from scheduling.capacity.free_capacity import FreeCapacity
from scheduling.domain import Allocation, Gang, Reason, Snapshot
from scheduling.domain.reason_codes import ReasonCode
from scheduling.domain.wording import words


def start_minimums(snapshot: Snapshot, why: str) -> Allocation:
    field = view(snapshot)
    free_capacity = FreeCapacity(snapshot, field)
    kept = Reason(ReasonCode.SOLVER_FAILED, f"This round has no new plan because {why}; the job keeps its GPUs.")
    reasons = field.reasons | {job.id: kept for job in field.running}
    for job in field.queued:
        needs = {name: span.low for name, span in field.spans(job).items()}
        gangs = [Gang(name, n) for name, n in needs.items() if n <= free_capacity.free[name]]
        fits = [gang for gang in gangs if free_capacity.allows(job, gang)]
        gang = max(fits, key=lambda gang: field.steps_per_s(job, gang), default=None)
        if gang is None:
            reasons[job.id] = free_capacity.over_limit(job, needs) or free_capacity.no_room(job, needs)
            continue
        free_capacity.give(job, gang)
        text = f"This round has no full plan because {why}; the job starts on its minimum, {words(gang)}."
        reasons[job.id] = Reason(ReasonCode.SOLVER_FAILED, text)
    return Allocation(counts=free_capacity.counts, reasons=reasons, figures={"solver_failed": 1.0})
