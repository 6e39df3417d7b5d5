"""Measured durations of restarts."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

from portal.jobs.models import Cluster, Run

_NEWEST = 50


@dataclass(frozen=True, slots=True)
class RestartTimes:
    """Seconds; `launch_s` from the command to the first step."""

    launch_s: float
    checkpoint_s: float


def restart_times(cluster: Cluster) -> RestartTimes | None:
    """Medians over the newest runs; None if none was launched yet."""
    newest = Run.objects.filter(job__cluster=cluster, launch_s__gt=0).order_by("-created_at")
    measured = list(newest.values_list("launch_s", "checkpoint_s")[:_NEWEST])
    if not measured:
        return None
    return RestartTimes(median(launch for launch, _ in measured), median(checkpoint for _, checkpoint in measured))
