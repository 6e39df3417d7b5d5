"""A job that waits for its next attempt, for display."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from portal.jobs.models import Run
from scheduling.domain.reason_codes import UNSPECIFIC
from scheduling.lifecycle import TRAINING, State


def describe_retry(run: Run) -> dict[str, Any] | None:
    """None unless it waits for its next attempt. Independent of the time: the page counts down."""
    if not run.awaits_retry:
        return None
    at = run.not_before.isoformat(timespec="milliseconds").replace("+00:00", "Z") if run.not_before else None
    return {"at": at, "attempt": run.attempt, "of": run.retry_of, "why": run.retry_why}


def reason_text(run: Run, now: datetime | None = None) -> str:
    """The run's reason, or when it is retried, without `now` as a time of day; preceded by what its engine waits
    for."""
    if run.engine_waits and State(run.state) in (State.LAUNCHING, *TRAINING):
        return f"{run.engine_waits[0].upper()}{run.engine_waits[1:]}. {run.reason_text}"
    if not run.awaits_retry or run.not_before is None or run.reason_token not in UNSPECIFIC:
        return run.reason_text
    which = f"attempt {run.attempt}" + (f" of {run.retry_of}" if run.retry_of else "")
    if now is None:
        return f"{run.retry_why}; tried again at {run.not_before:%H:%M:%S} UTC ({which})."
    left_s = (run.not_before - now).total_seconds()
    when = f"in {left_s:.0f} s" if left_s > 0 else "as soon as GPUs are free"
    return f"{run.retry_why}; tried again {when} ({which})."
