"""Examines a cluster for an administrator in the browser: a worker does it; the result is stored for an hour."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TypedDict

from celery import current_app
from django.core.cache import cache

from portal.jobs.clusters import engine_of
from portal.jobs.models import Cluster

_KEY, _KEEP_S = "examination:{}", 3_600
#: An examination that takes longer is abandoned: its worker may be gone.
LONGEST = timedelta(minutes=5)


class Seen(TypedDict):
    subject: str
    result: str  # passed, failed, unknown
    seen: str
    fix: str


class Examination(TypedDict):
    cluster: str
    executor: str
    began_at: datetime | None
    ended_at: datetime | None
    findings: list[Seen]


def last_examination(cluster: Cluster) -> Examination:
    found: Examination | None = cache.get(_KEY.format(cluster.pk))
    return found or _examination(cluster, None)


def begin_examination(cluster: Cluster, now: datetime) -> Examination:
    """The examination under way, if there is one."""
    before = last_examination(cluster)
    if before["began_at"] and not before["ended_at"] and now - before["began_at"] < LONGEST:
        return before
    begun = _examination(cluster, now)
    cache.set(_KEY.format(cluster.pk), begun, _KEEP_S)
    arguments = (cluster.pk, now.isoformat())
    current_app.send_task("evenkeel.examine_cluster", arguments, expires=LONGEST.total_seconds(), retry=False)
    return begun


def _examination(cluster: Cluster, began_at: datetime | None) -> Examination:
    executor = engine_of(cluster.pk).executor
    return Examination(cluster=cluster.name, executor=executor, began_at=began_at, ended_at=None, findings=[])


def conclude(cluster: Cluster, begun: Examination, findings: list[Seen], now: datetime) -> None:
    ended = Examination(**{**begun, "ended_at": now, "findings": findings})
    cache.set(_KEY.format(cluster.pk), ended, _KEEP_S)
