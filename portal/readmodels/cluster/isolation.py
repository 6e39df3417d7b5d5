"""Whether projects are kept apart on the nodes, to be said on every page."""

from __future__ import annotations

import os

from django.http import HttpRequest

from portal.jobs.clusters import active_clusters
from portal.jobs.models import Cluster


def single_trust_mode(cluster: Cluster | None) -> bool:
    """Jobs of all projects run under the portal's own account. Before the first inventory: as this process could."""
    if not (cluster and cluster.isolation):
        return os.geteuid() != 0
    return cluster.isolation == "single_trust"


def admin_notice(request: HttpRequest) -> tuple[str, str] | None:
    """What the administration's pages say beside the user's name, with its colour."""
    return ("single-trust mode", "warning") if single_trust_mode(active_clusters().first()) else None
