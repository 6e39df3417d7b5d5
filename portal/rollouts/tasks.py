"""Candidates plan on a separate queue, so that neither rounds nor simulations wait for them; guards are short."""

from __future__ import annotations

from celery import shared_task
from django.utils import timezone

from portal.core.locks import guard_lock, shadow_lock
from portal.jobs.models import Cluster
from portal.rollouts import guarding, shadowing


@shared_task(
    name="evenkeel.shadow_round",
    ignore_result=True,
    soft_time_limit=shadowing.LONGEST_S,
    time_limit=shadowing.KILLED_S,
)
def shadow_round(cluster_id: int) -> None:
    """The newest round of a cluster, planned by the candidate in the shadow."""
    cluster = Cluster.objects.filter(pk=cluster_id).first()
    if cluster is None:
        return
    with shadow_lock(cluster_id) as mine:
        if mine:
            shadowing.shadow(cluster)


@shared_task(name="evenkeel.guard_rollouts", ignore_result=True)
def guard_rollouts() -> None:
    """Check promoted policies against their bounds."""
    with guard_lock() as mine:
        if mine:
            guarding.check_all(timezone.now())


@shared_task(name="evenkeel.prune_rollouts", ignore_result=True)
def prune_rollouts() -> None:
    """Keep stored shadow decisions within their limit."""
    shadowing.prune()
