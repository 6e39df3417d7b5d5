"""Files of moved jobs on their way to the new project's account. Rows ensure that none is forgotten."""

from __future__ import annotations

from datetime import datetime, timedelta
from uuid import UUID

from django.db import transaction
from django.db.models import F

from portal.core import wake
from portal.jobs import events
from portal.jobs.models import Handover, Job

MAX_ATTEMPTS = 20
_FIRST_WAIT_S, _LONGEST_WAIT_S = 10.0, 600.0
_BATCH = 1_000


def ask_for_handover(job: Job, now: datetime) -> None:
    """In the transaction that moves the job: its files follow after the commit."""
    again = {"asked_at": now, "attempts": 0, "next_attempt_at": now, "error": ""}
    Handover.objects.update_or_create(job=job, defaults=again)
    transaction.on_commit(lambda: wake.hand_over(job.pk))


def due_handovers(now: datetime) -> list[UUID]:
    """Handovers that did not succeed at once, and are still retried."""
    due = Handover.objects.filter(attempts__lt=MAX_ATTEMPTS, next_attempt_at__lte=now)
    return list(due.order_by("next_attempt_at").values_list("job_id", flat=True)[:_BATCH])


def claim_handover(job_id: UUID, now: datetime) -> Handover | None:
    """For one worker at a time; None if nothing is left to do now."""
    found = Handover.objects.select_related("job__cluster").filter(pk=job_id, attempts__lt=MAX_ATTEMPTS).first()
    if found is None or found.next_attempt_at > now:
        return None
    wait_s = min(_LONGEST_WAIT_S, _FIRST_WAIT_S * 2**found.attempts)
    mine = Handover.objects.filter(pk=job_id, attempts=found.attempts, asked_at=found.asked_at)
    claimed = mine.update(attempts=F("attempts") + 1, next_attempt_at=now + timedelta(seconds=wait_s))
    return found if claimed else None


def finish_handover(handover: Handover) -> None:
    """Unless the job was moved again meanwhile."""
    Handover.objects.filter(pk=handover.pk, asked_at=handover.asked_at).delete()


@transaction.atomic
def note_failed_handover(handover: Handover, error: str, now: datetime) -> None:
    """It is retried; after the last attempt people are notified."""
    Handover.objects.filter(pk=handover.pk, asked_at=handover.asked_at).update(error=error[:2_000])
    if handover.attempts + 1 >= MAX_ATTEMPTS:
        text = f"#{handover.job.number}: its files are still its former project's: {error[:400]}"
        events.append(kind="notice", job=handover.job, at=now, text=text)
