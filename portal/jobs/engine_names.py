"""What people call the engine of a cluster."""

from __future__ import annotations

from portal.jobs.models import Cluster

_NAMES = {"local": "This machine", "ray": "Ray", "slurm": "Slurm"}


def engine_name(cluster: Cluster) -> str:
    """At the beginning of a sentence, too."""
    return _NAMES.get(cluster.executor, cluster.executor)
