"""Examining a cluster for an administrator who is elsewhere: a worker does it; what it found is kept for an hour."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TypedDict

from celery import current_app
from django.core.cache import cache

from portal.jobs.clusters import engine_of
from portal.jobs.models import Cluster

_KEY, _KEEP_S = "examination:{}", 3_600
#: One that has not ended by then is not waited for: its worker may be gone.
LONGEST = timedelta(minutes=5)


class Seen(TypedDict):
    subject: str
    result: str  # passed, failed, unknown
    seen: str
    fix: str


class Examination(TypedDict):
    cluster: str
    executor: str
    began_at: datetime
    ended_at: datetime | None
    findings: list[Seen]


def last_examination(cluster: Cluster) -> Examination | None:
    found: Examination | None = cache.get(_KEY.format(cluster.pk))
    return found


def begin_examination(cluster: Cluster, now: datetime) -> Examination:
    """The one under way, where there is one."""
    before = last_examination(cluster)
    if before is not None and before["ended_at"] is None and now - before["began_at"] < LONGEST:
        return before
    begun = Examination(
        cluster=cluster.name, executor=engine_of(cluster.pk).executor, began_at=now, ended_at=None, findings=[]
    )
    cache.set(_KEY.format(cluster.pk), begun, _KEEP_S)
    arguments = (cluster.pk, now.isoformat())
    current_app.send_task("evenkeel.examine_cluster", arguments, expires=LONGEST.total_seconds(), retry=False)
    return begun


def conclude(cluster: Cluster, begun: Examination, findings: list[Seen], now: datetime) -> None:
    ended = Examination(**{**begun, "ended_at": now, "findings": findings})
    cache.set(_KEY.format(cluster.pk), ended, _KEEP_S)
