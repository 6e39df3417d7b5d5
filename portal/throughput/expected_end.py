"""When a job ends if it keeps what it has."""

from __future__ import annotations

from datetime import datetime, timedelta

from portal.jobs.models import Job, Run
from scheduling.lifecycle import LIVE, TRAINING, WAITING, State

#: An estimate's range: how far measured ends were off.
SPREAD = {"measured": 0.05, "user": 0.15, "catalogue": 0.15, "estimated": 0.3, "trial": 0.5}
#: "Until I cancel it": an end so far away is none (and no date can hold it).
_NO_END_IN_SIGHT_S = 50 * 365 * 86_400.0


def expected_end(
    job: Job, run: Run, steps_per_s: float | None, source: str, now: datetime, left_s: float | None = None
) -> tuple[datetime | None, datetime | None, datetime | None]:
    """It, and its range: remaining steps at its throughput, or `left_s` in training, after what is left of a launch."""
    state = State(run.state)
    if not steps_per_s or state not in LIVE or state in WAITING:
        return None, None, None
    most_s = _NO_END_IN_SIGHT_S if left_s is None else left_s
    train_s = max(0, job.total_steps - run.step) / steps_per_s
    if min(train_s, most_s) >= _NO_END_IN_SIGHT_S:
        return None, None, None
    launch_s = run.launch_s if state not in TRAINING else 0.0
    spread = SPREAD.get(source, 0.3)
    ends_s = (train_s, train_s * (1 - spread), train_s * (1 + spread))
    middle, low, high = (now + timedelta(seconds=launch_s + min(end_s, most_s)) for end_s in ends_s)
    return middle, low, high
