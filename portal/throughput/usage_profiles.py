"""Recorded GPU use of applications, as policies read it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from portal.core.series import history_of, unpack
from portal.jobfile.resources import WHOLE_PERCENT
from portal.jobs.clusters import is_emulated
from portal.jobs.models import Job, ResourceProfile
from portal.throughput.profiles import workload_of
from scheduling import domain
from scheduling.domain.usage_history import ResourceHistory

#: Most applications whose histories are read in one round, the last recorded first.
MOST_PROFILES = 2_000
Key = tuple[str, int, int, int]  # workload, batch size, GPUs, share in percent


def with_histories(views: tuple[domain.Job, ...], jobs: Sequence[Job]) -> tuple[domain.Job, ...]:
    """`jobs` are the rows of `views`, in their order. Histories are those of the allowed type on which the application
    was recorded last; an application without records has none."""
    known = _recorded({workload_of(job) for job in jobs}, jobs[0].cluster_id) if jobs else {}
    return tuple(_with_history(view, known.get(_key(job), {})) for view, job in zip(views, jobs, strict=True))


def _key(job: Job) -> Key:
    return workload_of(job), job.batch_size, job.min_gpus, job.gpu_share_percent


def _with_history(view: domain.Job, known: dict[str, ResourceHistory]) -> domain.Job:
    usable = (history for kind, history in known.items() if not view.types or kind in view.types)
    history = next(usable, None)
    return view if history is None else replace(view, history=history)


def _recorded(workloads: Iterable[str], cluster_id: int) -> dict[Key, dict[str, ResourceHistory]]:
    """By type, the newest first."""
    rows = ResourceProfile.objects.filter(workload__in=list(workloads), emulated=is_emulated(cluster_id))
    found: dict[Key, dict[str, ResourceHistory]] = {}
    for row in rows.order_by("-updated_at")[:MOST_PROFILES]:
        history = history_of(unpack(row.history), row.interval_s, row.share_percent / WHOLE_PERCENT)
        if history is not None:
            key = row.workload, row.batch_size, row.gpus, row.share_percent
            found.setdefault(key, {})[row.accelerator_type] = history
    return found
