"""Suspends jobs whose hard budget is used up: they write a checkpoint, leave their GPUs and wait for the next
period."""

from __future__ import annotations

from dataclasses import replace

from scheduling.domain import Job, Limit, Reason, Snapshot
from scheduling.domain.reason_codes import ReasonCode
from scheduling.engine.state import Effect
from scheduling.lifecycle import State

_LEAVES = frozenset({State.LAUNCHING, State.RUNNING_PROTECTED, State.RUNNING})


def suspend_jobs_over_budget(snapshot: Snapshot) -> Effect:
    """Jobs that cannot be checkpointed keep running: suspending them would lose their work."""
    changed, reasons = dict[str, Job | None](), dict[str, Reason]()
    spent = {key: limit for key, limit in snapshot.limits.items() if limit.kind == "spent" and limit.parks}
    if not spent:
        return Effect()
    for job in snapshot.jobs:
        limit = next((spent[key] for key in job.limits if key in spent), None)
        if limit is None or not job.gpu_ids or not job.restartable or job.held:
            continue
        if job.state in _LEAVES or job.state is State.STANDBY:
            changed[job.id] = replace(
                job, state=State.WAITING_FOR_RESOURCE, gpu_ids=(), gang=None, protected_until=None
            )
            reasons[job.id] = _reason(limit)
    return Effect(changed, reasons)


def _reason(limit: Limit) -> Reason:
    text = f"Suspended with a checkpoint because the budget is used up: {limit.text}"
    return Reason(
        ReasonCode.BUDGET_SUSPENDED, text, {"level": f"budget of {limit.level}", "expected_start_at": limit.until}
    )
