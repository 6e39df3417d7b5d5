"""Used against allocated GPU time: what runners say of how busy GPUs are, summed by job and day beside what was held.

One row for each job, day and type, the ones that the ledger is rolled up into: however often a runner reports.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import connection
from django.db.models import Sum
from django.utils import timezone

from accounts.models import UsageDay

_ADD = """
    INSERT INTO accounts_usageday (day, project_id, user_id, job_id, accelerator_type, gpu_us_hundredths, product,
                                   measured_us_hundredths, used_us_hundredths)
    VALUES (%s, %s, %s, %s, %s, 0, 0, %s, %s)
    ON CONFLICT (job_id, day, accelerator_type, project_id) DO UPDATE SET
        measured_us_hundredths = accounts_usageday.measured_us_hundredths + excluded.measured_us_hundredths,
        used_us_hundredths = accounts_usageday.used_us_hundredths + excluded.used_us_hundredths"""


def add_use(
    *,
    at: datetime,
    project_id: int,
    user_id: int | None,
    job_id: UUID,
    accelerator_type: str,
    measured_us_hundredths: int,
    utilisation: float,
) -> None:
    """A stretch that ended at a time, on that day of the site."""
    day = at.astimezone(timezone.get_default_timezone()).date()
    used = round(measured_us_hundredths * min(1.0, max(0.0, utilisation)))
    values: list[Any] = [day, project_id, user_id, str(job_id), accelerator_type, measured_us_hundredths, used]
    with connection.cursor() as cursor:
        cursor.execute(_ADD, values)


def use_of(job_id: UUID) -> tuple[int, int]:
    """Measured and used microseconds of hundredths of a GPU, of all runs of a job: one query."""
    sums = UsageDay.objects.filter(job_id=job_id).aggregate(
        measured=Sum("measured_us_hundredths"), used=Sum("used_us_hundredths")
    )
    return int(sums["measured"] or 0), int(sums["used"] or 0)
