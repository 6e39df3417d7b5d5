"""A job's deadline against what is predicted of its end."""

from __future__ import annotations

from portal.jobs.describe import Context, expected_end_of
from portal.jobs.models import Job
from portal.jobs.snapshots import deadline_of
from scheduling.lifecycle import LIVE, State


def deadline_sentence(job: Job, ctx: Context) -> str | None:
    """What is to be said of the deadline of a live job: nothing while it is expected to be kept, or unknown."""
    deadline = deadline_of(job)
    if deadline is None or job.run is None or State(job.run.state) not in LIVE:
        return None
    if deadline <= ctx.now:
        return f"Its deadline passed at {deadline:%Y-%m-%d %H:%M} UTC; it goes on."
    end = expected_end_of(job, ctx)
    if end is None or end <= deadline:
        return None
    return (
        f"It is expected to end at {end:%Y-%m-%d %H:%M} UTC with the GPUs that it has, "
        f"after its deadline of {deadline:%Y-%m-%d %H:%M} UTC."
    )
