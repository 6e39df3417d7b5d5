"""Accelerator types of a cluster, and how many GPUs of each it has."""

from __future__ import annotations

from django.db.models import Count

from portal.jobs.models import Accelerator


def cluster_types(cluster_id: int) -> dict[str, int]:
    """GPUs per accelerator type that can be used now."""
    present = Accelerator.objects.filter(node__cluster=cluster_id, present=True, node__lost=False).order_by()
    return dict(present.values_list("node__accelerator_type").annotate(count=Count("pk")))
