"""Where jobs stand in the queue: priority, submission, id."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from django.db.models import F, Q, Window
from django.db.models.functions import RowNumber

from portal.jobs.models import Job
from portal.jobs.selectors import in_states
from scheduling.lifecycle import WAITING

_ORDER = (F("priority").desc(), F("submitted_at").asc(), F("id").asc())
#: For more jobs than a page has, the whole queue is read as fast as theirs is picked out of it.
_MANY = 200


def queue_order(cluster_id: int | None = None) -> dict[UUID, int]:
    """Job ids in queue order, numbered from 1."""
    jobs = Job.objects.filter(in_states(WAITING), hold_kind="")
    if cluster_id is not None:
        jobs = jobs.filter(cluster_id=cluster_id)
    return {pk: position for position, pk in enumerate(jobs.order_by(*_ORDER).values_list("id", flat=True), 1)}


def queue_positions(waiting: Sequence[Job]) -> dict[UUID, int]:
    """The same numbers for some waiting jobs: for a few of them the database counts, and does not send the queue."""
    if not waiting or len(waiting) > _MANY:
        return queue_order() if waiting else {}
    numbered = Job.objects.filter(in_states(WAITING), hold_kind="").order_by()
    numbered = numbered.annotate(position=Window(RowNumber(), order_by=_ORDER))
    # Beside a condition on the position, which none meets, this one is applied after the numbering.
    mine = Q(position=0) | Q(pk__in=[job.pk for job in waiting])
    return dict(numbered.filter(mine).values_list("pk", "position"))
