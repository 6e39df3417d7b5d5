"""Storage used by checkpoints, and which of them are removed.

Rows record every checkpoint; the SDK itself keeps the newest few of a job, so only these are counted.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Container, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from django.conf import settings
from django.core.cache import cache
from django.utils import timezone
from redis.exceptions import RedisError

from accounts.models import Project
from portal.jobs import events
from portal.jobs.models import LIVE_VALUES, Checkpoint
from portal.material import quotas
from portal.material.models import StorageQuota

CACHED_S, _KEPT_S = 30, 3_600


@dataclass(frozen=True, slots=True)
class Kept:
    """A checkpoint on disk, as far as the portal knows."""

    job_id: UUID
    cluster_id: int
    project_key: str
    step: int
    at: datetime
    size_bytes: int
    path: str
    final: bool  # the newest of its job
    ended_at: datetime | None  # of the job; None while it lives

    @property
    def place(self) -> str:
        return f"jobs/{self.job_id}/checkpoints/{self.path}"


def kept(project: Project) -> list[Kept]:
    """The checkpoints of a project that should still exist, oldest first."""
    rows = (
        Checkpoint.objects.filter(run__job__project=project)
        .order_by("run__job", "-step", "-at")
        .values_list("run__job", "run__job__cluster", "step", "at", "size_bytes", "path", "run__job__spec",
                     "run__job__run__state", "run__job__run__ended_at")
    )  # fmt: skip
    by_job: dict[UUID, dict[int, Kept]] = defaultdict(dict)
    for job_id, cluster_id, step, at, size, path, spec, state, ended_at in rows.iterator():
        found = by_job[job_id]
        if step in found or len(found) >= spec.get("checkpoint", {}).get("keep", 3):
            continue
        over = None if state in LIVE_VALUES else ended_at
        found[step] = Kept(job_id, cluster_id, project.key, step, at, size, path or f"step-{step}", not found, over)
    return sorted((one for found in by_job.values() for one in found.values()), key=lambda one: one.at)


def used_bytes(project: Project) -> int:
    return sum(one.size_bytes for one in kept(project))


def is_full(project: Project, hard_bytes: int) -> int | None:
    """Bytes of the checkpoints if they reach `hard_bytes`.

    A submission must not count everything: the count of half a minute ago plus everything written since is an upper
    bound, and only if that is too much, checkpoints are counted again.
    """
    counted, since = cache.get(_key(project.pk, "counted")), cache.get(_key(project.pk, "since"), 0)
    if counted is not None and int(counted) < hard_bytes and int(counted) + int(since) < hard_bytes:
        return None
    used = recount(project)
    return used if used >= hard_bytes else None


def recount(project: Project) -> int:
    cache.set(_key(project.pk, "since"), 0, _KEPT_S)  # first: bytes written meanwhile may count twice, never not at all
    used = used_bytes(project)
    cache.set(_key(project.pk, "counted"), used, CACHED_S)
    return used


def note_written(project_id: int, size_bytes: int) -> None:
    """Record the size of a reported checkpoint. Without the cache each submission counts itself."""
    with contextlib.suppress(ValueError, RedisError):  # ValueError: there is no recent count
        cache.incr(_key(project_id, "since"), size_bytes)


def _key(project_id: int, what: str) -> str:
    return f"checkpoint-bytes:{what}:{project_id}"


def going(project: Project, now: datetime, stuck: Container[str] = ()) -> Iterator[Kept]:
    """Checkpoints to remove, of ended jobs: those older than the rule allows, then the oldest until the hard limit
    holds. Those in `stuck` cannot be removed: they still take space, so others are removed instead."""
    keep, hard = settings.EVENKEEL_KEEP, quotas.checkpoint_hard_bytes(project)
    rows = kept(project)
    total = sum(one.size_bytes for one in rows)
    for one in rows:
        if one.ended_at is None or one.place in stuck:
            continue
        days = keep.final_checkpoints_days if one.final else keep.checkpoints_days
        if one.ended_at < now - timedelta(days=days) or (hard and total > hard):
            total -= one.size_bytes
            yield one


def forget(one: Kept) -> None:
    """After its files are gone."""
    Checkpoint.objects.filter(run__job=one.job_id, step=one.step).delete()


def warn(project: Project, now: datetime) -> None:
    """One event when the soft limit is exceeded, and the next one only after it was met again."""
    soft, used = quotas.checkpoint_soft_bytes(project), used_bytes(project)
    over = bool(soft) and used > soft
    row, _ = StorageQuota.objects.get_or_create(project=project)
    if over and row.warned_at is None:
        text = f"Checkpoints of {project.name} have {used >> 20:,} MiB, more than the {soft >> 20:,} MiB foreseen"
        events.append(kind="storage_warning", project=project, text=text, at=now, detail={"bytes": used, "soft": soft})
    if over != (row.warned_at is not None):
        StorageQuota.objects.filter(pk=row.pk).update(warned_at=timezone.now() if over else None)
