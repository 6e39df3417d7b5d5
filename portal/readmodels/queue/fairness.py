"""How evenly jobs are slowed down now, for pages (docs/fairness.md)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean, median
from typing import Any

from django.core.cache import cache

from portal.history.standings import Measured, Standing, measure
from portal.jobs.models import Cluster

_KEY = "fairness/{}/{}"
_KEPT_S = 5


def measured_lately(cluster: Cluster) -> list[Measured]:
    """The same, at most this many seconds old, and of this round: for pages, many of which may be open."""
    key = _KEY.format(cluster.pk, cluster.round_epoch)
    known: list[Measured] | None = cache.get(key)
    if known is None:
        known = measure(cluster)
        cache.set(key, known, _KEPT_S)
    return known


def describe_standing(standing: Standing) -> dict[str, Any]:
    relative = standing.relative
    return {
        "running": standing.holding,
        "known": len(relative),
        "waiting": standing.waiting,
        "relative_throughput": _spread(relative),
        "slowdown": {"mean": _rounded(standing.slowdown), "highest": _rounded(1 / min(relative))} if relative else None,
        "variance": _rounded(standing.variance, 6),
    }


def _spread(relative: Sequence[float]) -> Mapping[str, float | None] | None:
    if not relative:
        return None
    figures = {"lowest": min(relative), "median": median(relative), "mean": fmean(relative), "highest": max(relative)}
    return {name: _rounded(value) for name, value in figures.items()}


def _rounded(value: float | None, digits: int = 4) -> float | None:
    return None if value is None else round(value, digits)
