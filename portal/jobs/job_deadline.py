"""The deadline of a job."""

from __future__ import annotations

from datetime import datetime

from portal.jobs.models import Job


def deadline_of(job: Job) -> datetime | None:
    given = job.spec.get("deadline")
    return datetime.fromisoformat(given) if given else None
