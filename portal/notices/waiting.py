"""Notices about jobs that wait for long: once to each destination."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import connection, transaction

from accounts.models import Project
from accounts.selectors import roles_among
from portal.jobs.loops import Item, Loop, LoopName
from portal.jobs.models import Job, Run
from portal.notices import kinds, messages
from portal.notices.models import Delivery, Destination, WaitingTold
from portal.notices.outbox import delivery_of
from scheduling.lifecycle import QUEUED, TERMINAL

#: Sent at once, longest waits first; the others follow the next time.
_MOST = 2_000
_BATCH = 1_000
#: Time on hold or waiting for dependencies does not count; a job that lost its GPUs starts waiting anew. Only names of
#: tables are inserted here.
_LONG_WAITS = f"""
    SELECT destination.id, job.id, wait.since
    FROM {Destination._meta.db_table} destination
    JOIN {Job._meta.db_table} job ON NOT destination.own_jobs OR job.owner_id = destination.user_id
    JOIN {Run._meta.db_table} run ON run.id = job.run_id
    JOIN {Project._meta.db_table} project ON project.id = job.project_id,
    LATERAL (
        SELECT CASE WHEN run.first_started_at IS NULL THEN coalesce(job.eligible_at, job.submitted_at)
            ELSE run.state_since END AS since
    ) wait
    WHERE destination.id = ANY(%(destinations)s)
    AND (destination.project_id IS NULL OR destination.project_id = ANY(project.ancestry))
    AND run.state = ANY(%(queued)s) AND job.hold_kind = '' AND run.reason_token <> 'dependency'
    AND wait.since <= %(now)s - destination.waiting_minutes * interval '1 minute'
    AND NOT EXISTS (
        SELECT FROM {WaitingTold._meta.db_table} told
        WHERE told.destination_id = destination.id AND told.job_id = job.id
    )
    ORDER BY wait.since, destination.id LIMIT %(most)s
"""  # noqa: S608  # nosec B608


@transaction.atomic
def tell_long_waits(now: datetime) -> int:
    """Returns how many notices were created. One statement if no destination wants any."""
    wanting = Destination.objects.select_related("user").filter(enabled=True, user__is_active=True)
    # another process that does the same at this moment gets none of them
    mine = wanting.select_for_update(skip_locked=True, no_key=True, of=("self",))
    destinations = {one.pk: one for one in mine.filter(events__contains=[kinds.WAITING])}
    found = _long_waits(list(destinations), now) if destinations else []
    if not found:
        return 0
    WaitingTold.objects.bulk_create(
        [WaitingTold(destination_id=destination, job_id=job) for destination, job, _ in found], batch_size=_BATCH
    )
    jobs = Job.objects.select_related("run", "project").in_bulk({job for _, job, _ in found})
    users = [one.user_id for one in destinations.values()]
    roles = roles_among(users, {job.project_id: job.project for job in jobs.values()}.values())

    def write(waits: Sequence[tuple[int, UUID, datetime]]) -> list[Delivery]:
        due = ((destinations[pk], jobs[job_id], since) for pk, job_id, since in waits)
        return [
            delivery_of(destination, messages.of_waiting(job, since, now), now)
            for destination, job, since in due
            if destination.user.is_superuser or (destination.user_id, job.project_id) in roles
        ]

    rows = Loop(LoopName.LONG_WAITS, postpones=False).together(found, _of_wait, write)
    Delivery.objects.bulk_create(rows, batch_size=_BATCH)
    return len(rows)


def _of_wait(wait: tuple[int, UUID, datetime]) -> Item:
    return Item(f"{wait[0]}:{wait[1]}", f"destination {wait[0]}, job {wait[1]}", wait[1])


def _long_waits(destinations: list[int], now: datetime) -> list[tuple[int, UUID, datetime]]:
    values: dict[str, Any] = {
        "destinations": destinations,
        "queued": [s.value for s in QUEUED],
        "now": now,
        "most": _MOST,
    }
    with connection.cursor() as cursor:
        cursor.execute(_LONG_WAITS, values)
        return list(cursor.fetchall())


def forget_ended() -> None:
    """Ended jobs wait for nothing."""
    WaitingTold.objects.filter(job__run__state__in=[state.value for state in TERMINAL]).delete()
