"""What the cluster does when a policy's solver fails: nobody is moved, and queued jobs start on their minimum."""

from __future__ import annotations

from scheduling.domain import Allocation, Gang, Reason, Snapshot
from scheduling.policies._view import view, words
from scheduling.policies.fifo_gang import keep_present, no_room


def start_minimums(snapshot: Snapshot, why: str) -> Allocation:
    field = view(snapshot)
    counts, free = keep_present(snapshot, field)
    kept = Reason("solver_failed", f"This round has no new split because {why}; the job keeps its GPUs.")
    reasons = {**field.reasons, **{job.id: kept for job in field.running}}
    for job in field.queued:
        spans = field.spans(job)
        fits = [Gang(name, span.low) for name, span in spans.items() if span.low <= free[name]]
        gang = max(fits, key=lambda gang: field.steps_per_s(job, gang), default=None)
        if gang is None:
            reasons[job.id] = no_room(field, job, free, {name: span.low for name, span in spans.items()})
            continue
        counts[job.id] = gang
        free[gang.type] -= gang.count
        text = f"This round has no full plan because {why}; the job starts on its minimum, {words(gang)}."
        reasons[job.id] = Reason("solver_failed", text)
    return Allocation(counts=counts, reasons=reasons, figures={"solver_failed": 1.0})
