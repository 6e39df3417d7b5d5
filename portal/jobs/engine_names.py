"""Display names of engines."""

from __future__ import annotations

from portal.jobs.models import Cluster

_NAMES = {"local": "This machine", "ray": "Ray", "slurm": "Slurm"}


def engine_name(cluster: Cluster) -> str:
    """Also suitable at the beginning of a sentence."""
    return _NAMES.get(cluster.executor, cluster.executor)
