"""Utilised and allocated GPU time: utilisation reported by runners, summed by job and day beside the occupancy.

One row for each job, day and type, the same rows as the ledger's roll-up, however often a runner reports.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.db import connection
from django.db.models import Sum
from django.utils import timezone

from accounts.models import UsageDay

_ADD = """
    INSERT INTO accounts_usageday (day, project_id, user_id, job_id, accelerator_type, gpu_us_hundredths, product,
                                   measured_us_hundredths, used_us_hundredths)
    SELECT day, project, who, job, type, 0, 0, measured, used
    FROM unnest(%s::date[], %s::bigint[], %s::bigint[], %s::uuid[], %s::text[], %s::bigint[], %s::bigint[])
        AS said (day, project, who, job, type, measured, used)
    ON CONFLICT (job_id, day, accelerator_type, project_id) DO UPDATE SET
        measured_us_hundredths = accounts_usageday.measured_us_hundredths + excluded.measured_us_hundredths,
        used_us_hundredths = accounts_usageday.used_us_hundredths + excluded.used_us_hundredths"""


@dataclass(frozen=True, slots=True)
class Use:
    """An interval that ended at a time, on that day of the site."""

    at: datetime
    project_id: int
    user_id: int | None
    job_id: UUID
    accelerator_type: str
    measured_us_hundredths: int
    utilisation: float


def add_uses(uses: Iterable[Use]) -> None:
    """For different jobs; in the same order as the roll-up, to avoid deadlocks."""
    zone = timezone.get_default_timezone()
    rows = {}
    for use in uses:
        used = round(use.measured_us_hundredths * min(1.0, max(0.0, use.utilisation)))
        key = (use.at.astimezone(zone).date(), use.project_id, use.user_id, use.job_id, use.accelerator_type)
        rows[key] = (use.measured_us_hundredths, used)
    if rows:
        columns = [list(column) for column in zip(*((*key, *rows[key]) for key in sorted(rows, key=str)), strict=True)]
        columns[3] = [str(job) for job in columns[3]]
        with connection.cursor() as cursor:
            cursor.execute(_ADD, columns)


def use_of(job_id: UUID) -> tuple[int, int]:
    """Measured and utilised microseconds of hundredths of a GPU, of all runs of a job: one query."""
    sums = UsageDay.objects.filter(job_id=job_id).aggregate(
        measured=Sum("measured_us_hundredths"), used=Sum("used_us_hundredths")
    )
    return int(sums["measured"] or 0), int(sums["used"] or 0)
