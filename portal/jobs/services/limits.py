"""Limits that a job set itself."""

from __future__ import annotations

import contextlib
from datetime import datetime
from decimal import Decimal

from accounts.pricing import PRODUCTS_PER_UNIT
from portal.jobs.describe import gather, so_far_products
from portal.jobs.models import Job
from portal.jobs.services.moves import StaleRun
from portal.jobs.services.submission import JobHasEnded, cancel_job
from scheduling.lifecycle import HOLDING


def enforce(*, cluster_id: int, now: datetime) -> None:
    """End jobs that have cost what they may cost; their checkpoints stay."""
    limited = Job.objects.filter(
        cluster_id=cluster_id, spec__has_key="max_cost", run__state__in=[s.value for s in HOLDING]
    )
    jobs = list(limited.select_related("run", "project", "owner", "model_type"))
    if not jobs:
        return
    ctx = gather(jobs, now)
    for job in jobs:
        limit = Decimal(str(job.spec["max_cost"]))
        if so_far_products(job, ctx) >= limit * PRODUCTS_PER_UNIT:
            with contextlib.suppress(JobHasEnded, StaleRun):
                cancel_job(user=None, job=job, reason=f"it has cost the {limit.normalize():f} that it may cost")
