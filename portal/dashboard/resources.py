"""A job's use of its GPUs over time, and the known profile of its application."""

from __future__ import annotations

from typing import Any

from portal.core.series import Row, bounded, unpack
from portal.core.times import iso
from portal.jobs.models import Job, ResourceProfile, ResourceSeries
from portal.readmodels.jobs.summary import runs_emulated
from portal.throughput.profiles import workload_of
from scheduling.domain.usage_history import RESOURCES

#: Only the newest ones are shown.
MAX_LAUNCHES, MAX_PROFILES = 50, 50


def job_resources(job: Job, points: int) -> dict[str, Any]:
    """Over all launches, each series of at most `points` points; a gap between two launches."""
    rows = ResourceSeries.objects.filter(run__job=job).select_related("run").order_by("-began_at")
    launches = list(rows[:MAX_LAUNCHES])[::-1]
    most = max(2, points // max(1, len(launches)) - 1)
    series: dict[str, list[tuple[float, float | None]]] = {name: [] for name in RESOURCES}
    for launch in launches:
        _append(series, launch, most)
    profiles = ResourceProfile.objects.filter(workload=workload_of(job), batch_size=job.batch_size)
    newest = profiles.filter(share_percent=job.gpu_share_percent).order_by("-updated_at")[:MAX_PROFILES]
    return {
        "series": series,
        "launches": [_launch(launch) for launch in launches],
        "profiles": [_profile(profile) for profile in newest],
        "emulated": job.run is not None and runs_emulated(job.run, job.cluster_id),
    }


def rows_of(launch: ResourceSeries) -> list[Row]:
    tail: list[Row] = launch.tail
    return unpack(launch.packed) + tail


def _append(series: dict[str, list[tuple[float, float | None]]], launch: ResourceSeries, most: int) -> None:
    rows, _ = bounded(rows_of(launch), launch.interval_s, most)
    began = launch.began_at.timestamp()
    for number, name in enumerate(RESOURCES, 1):
        if series[name] and rows:
            series[name].append((round(began, 1), None))
        series[name] += [(round(began + (row[0] or 0.0), 1), _rounded(row[number])) for row in rows]


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


def _launch(launch: ResourceSeries) -> dict[str, Any]:
    return {
        "attempt": launch.run.attempt,
        "epoch": launch.epoch,
        "type": launch.accelerator_type,
        "gpus": launch.gpus,
        "share_percent": launch.share_percent,
        "emulated": launch.emulated,
        "source": launch.source,
        "interval_s": launch.interval_s,
        "from_at": iso(launch.began_at),
        "to_at": iso(launch.newest_at),
    }


def _profile(profile: ResourceProfile) -> dict[str, Any]:
    sums = profile.sums
    history = unpack(profile.history)
    return {
        "type": profile.accelerator_type,
        "gpus": profile.gpus,
        "share_percent": profile.share_percent,
        "emulated": profile.emulated,
        "launches": profile.launches,
        "seconds": round(max((seconds for _, seconds, _ in sums.values()), default=0.0), 1),
        "mean": {name: _mean(sums.get(name)) for name in RESOURCES},
        "peak": {name: _rounded(sums[name][2]) if name in sums else None for name in RESOURCES},
        "interval_s": profile.interval_s,
        "history": {name: [_rounded(row[number]) for row in history] for number, name in enumerate(RESOURCES, 1)},
        "updated_at": iso(profile.updated_at),
    }


def _mean(sums: list[float] | None) -> float | None:
    return _rounded(sums[0] / sums[1]) if sums and sums[1] else None
