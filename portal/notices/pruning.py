"""Retention of deliveries: the log is for debugging, not an archive."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db.models import Q, QuerySet, Window
from django.db.models.functions import RowNumber

from portal.notices.models import Delivery

KEPT_FOR = timedelta(days=30)
KEPT_OF_ONE = 200
#: Deliveries waiting for an unreachable destination.
WAITING_OF_ONE = 1_000
WAITING_FOR = timedelta(days=2)
_BATCH = 20_000


def prune(now: datetime) -> None:
    """Give up deliveries that have waited for too long or are too many, then remove old lines."""
    waiting = Delivery.objects.filter(status=Delivery.Status.WAITING)
    late = Q(created_at__lt=now - WAITING_FOR) | Q(pk__in=_beyond(waiting, WAITING_OF_ONE))
    waiting.filter(late).update(
        status=Delivery.Status.GIVEN_UP,
        finished_at=now,
        next_attempt_at=None,
        claimed_until=None,
        error=f"Not sent within {WAITING_FOR.days} days, or too many newer ones waited.",
    )
    done = Delivery.objects.exclude(status=Delivery.Status.WAITING)
    old = done.filter(Q(created_at__lt=now - KEPT_FOR) | Q(pk__in=_beyond(done, KEPT_OF_ONE)))
    while pks := list(old.order_by("pk").values_list("pk", flat=True)[:_BATCH]):
        Delivery.objects.filter(pk__in=pks).delete()


def _beyond(rows: QuerySet[Delivery], most: int) -> QuerySet[Delivery, int]:
    """All but the newest of each destination."""
    nth = Window(RowNumber(), partition_by="destination", order_by="-pk")
    return rows.order_by().annotate(nth=nth).filter(nth__gt=most).values_list("pk", flat=True)
