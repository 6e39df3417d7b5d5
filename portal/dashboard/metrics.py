"""A job's metrics over time, down-sampled so that extremes stay visible."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from portal.dashboard.spans import gangs_of
from portal.jobs.models import Job, MetricPoint
from portal.readmodels.jobs.detail import job_curves
from portal.readmodels.jobs.summary import runs_emulated

MAX_ROWS = 50_000
MAX_NAMES = 200
DEFAULT_NAMES = 20

Point = tuple[float, int, float]


def job_metrics(job: Job, names: Sequence[str], points: int, now: datetime) -> dict[str, Any]:
    """Series by name, each of at most `points` points; `names` empty: the first ones."""
    newest = MetricPoint.objects.filter(run__job=job).order_by("-at", "-id")
    rows = list(newest.values_list("at", "step", "values")[:MAX_ROWS])[::-1]
    known = sorted({name for _, _, values in rows for name in values})[:MAX_NAMES]
    wanted = [name for name in names if name in known] if names else known[:DEFAULT_NAMES]
    series: dict[str, list[Point]] = {name: [] for name in wanted}
    for at, step, values in rows:
        for name in wanted:
            if (value := values.get(name)) is not None:
                series[name].append((round(at.timestamp(), 3), step, value))
    return {
        "series": {name: thin(found, points) for name, found in series.items()},
        "names": known,
        "predicted_steps_per_s": _predicted(job, now),
        "emulated": job.run is not None and runs_emulated(job.run, job.cluster_id),
    }


def thin(points: list[Point], limit: int) -> list[Point]:
    """At most `limit` points: the lowest and the highest of each of equal intervals, and both ends."""
    if len(points) <= limit:
        return points
    buckets = (limit - 2) // 2
    inner = points[1:-1]
    kept = [points[0]]
    for bucket in range(buckets):
        part = inner[bucket * len(inner) // buckets : (bucket + 1) * len(inner) // buckets]
        if part:
            by_value = sorted(range(len(part)), key=[point[2] for point in part].__getitem__)
            kept += [part[i] for i in sorted({by_value[0], by_value[-1]})]
    return [*kept, points[-1]]


def _predicted(job: Job, now: datetime) -> list[tuple[float, float]]:
    """What its curve predicts on the GPUs that it held, as steps."""
    known = job_curves(job)
    predicted = []
    for gang in gangs_of(job):
        profile = known.get(gang.type)
        if profile is not None and (value := profile.curve.at(gang.count)):
            end = gang.to_at or now
            predicted += [(round(gang.from_at.timestamp(), 3), value), (round(end.timestamp(), 3), value)]
    return predicted
