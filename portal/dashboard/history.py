"""The overview's sparklines."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from accounts.pricing import from_micro
from portal.core.times import iso
from portal.jobs.models import Cluster, ClusterSample

MAX_POINTS = 500


def cluster_history(cluster: Cluster, minutes: int, now: datetime) -> dict[str, Any]:
    """Evenly spaced samples, at most 500, including the newest one."""
    rows = list(cluster.samples.filter(at__gt=now - timedelta(minutes=minutes), at__lte=now).order_by("-at"))
    every = -(-len(rows) // MAX_POINTS) or 1
    return {"points": [_point(row) for row in rows[::every][::-1]]}


def _point(row: ClusterSample) -> dict[str, Any]:
    return {
        "at": iso(row.at),
        "utilisation": round(row.gpus_held / row.gpus_total, 4) if row.gpus_total else 0.0,
        "queued": row.queued,
        "variance": row.variance,
        "spend_per_hour": str(round(from_micro(row.spend_micro_per_hour), 2)),
    }
