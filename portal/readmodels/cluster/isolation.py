"""Whether projects are isolated from each other on the nodes, shown on every page."""

from __future__ import annotations

import os

from django.http import HttpRequest

from portal.jobs.clusters import active_clusters
from portal.jobs.models import Cluster


def single_trust_mode(cluster: Cluster | None) -> bool:
    """Jobs of all projects run under the portal's own account. Before the first inventory: judged by this process."""
    if not (cluster and cluster.isolation):
        return os.geteuid() != 0
    return cluster.isolation == "single_trust"


def admin_notice(request: HttpRequest) -> tuple[str, str] | None:
    """The notice in the Django admin beside the user's name, with its colour."""
    return ("single-trust mode", "warning") if single_trust_mode(active_clusters().first()) else None
