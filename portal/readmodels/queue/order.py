"""Positions in the queue: priority, submission, id; under `multifactor` by its sum."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from django.core.cache import cache
from django.db.models import F, Q, Window
from django.db.models.functions import RowNumber
from django.utils import timezone

from portal.jobs.access import in_states
from portal.jobs.models import Cluster, Job
from portal.snapshot.priority_inputs import gather_priority_inputs, score_waiting
from scheduling.lifecycle import WAITING
from scheduling.policies.queue.multifactor import Multifactor

_ORDER = (F("priority").desc(), F("submitted_at").asc(), F("id").asc())
#: For more jobs than a page shows, reading the whole queue is as fast as selecting them.
_MANY = 200
_KEY = "queue-order/{}/{}"
_KEPT_S = 5


def queue_order(cluster: Cluster) -> dict[UUID, int]:
    """Ids of the cluster's jobs in queue order, numbered from 1."""
    if cluster.policy_name == Multifactor.name:
        return _ranked(cluster)
    jobs = Job.objects.filter(in_states(WAITING), hold_kind="", cluster=cluster)
    return {pk: position for position, pk in enumerate(jobs.order_by(*_ORDER).values_list("id", flat=True), 1)}


def queue_positions(waiting: Sequence[Job]) -> dict[UUID, int]:
    """The same positions for some waiting jobs: for a few of them the database counts, without sending the queue."""
    clusters = {job.cluster_id: job.cluster for job in waiting}
    found: dict[UUID, int] = {}
    for cluster in clusters.values():
        found |= _positions(cluster, [job for job in waiting if job.cluster_id == cluster.pk])
    return found


def _positions(cluster: Cluster, waiting: Sequence[Job]) -> dict[UUID, int]:
    if cluster.policy_name == Multifactor.name:
        ranked = _ranked(cluster)
        return {job.pk: ranked[job.pk] for job in waiting if job.pk in ranked}
    if len(waiting) > _MANY:
        return queue_order(cluster)
    waiting = [job for job in waiting if not job.hold_kind]
    if len(waiting) < 2:
        return _position(waiting[0]) if waiting else {}
    numbered = Job.objects.filter(in_states(WAITING), hold_kind="", cluster=cluster).order_by()
    numbered = numbered.annotate(position=Window(RowNumber(), order_by=_ORDER))
    # A condition beside the position, which the planner cannot use, is applied after the numbering.
    mine = Q(position=0) | Q(pk__in=[job.pk for job in waiting])
    return dict(numbered.filter(mine).values_list("pk", "position"))


def _position(job: Job) -> dict[UUID, int]:
    """Counts the jobs ahead; numbering all takes the database several times as long."""
    same = Q(priority=job.priority)
    ahead = Q(priority__gt=job.priority) | same & Q(submitted_at__lt=job.submitted_at)
    ahead |= same & Q(submitted_at=job.submitted_at, id__lt=job.pk)
    return {
        job.pk: Job.objects.filter(ahead, in_states(WAITING), hold_kind="", cluster=job.cluster_id).order_by().count()
        + 1
    }


def _ranked(cluster: Cluster) -> dict[UUID, int]:
    """By the policy's own sum, at most this many seconds old."""
    known: dict[UUID, int] | None = cache.get(_KEY.format(cluster.pk, cluster.round_epoch))
    if known is None:
        scores, waiting = score_waiting(gather_priority_inputs(cluster, timezone.now()))
        known = {UUID(waiting[at].id): place for place, at in enumerate(scores.order, 1)}
        cache.set(_KEY.format(cluster.pk, cluster.round_epoch), known, _KEPT_S)
    return known
