"""Tasks outside the rounds; nothing waits for them."""

from __future__ import annotations

from celery import shared_task
from django.utils import timezone

from portal.history.shares import sample_shares
from portal.history.standings import sample_fairness
from portal.jobs.clusters import active_clusters
from portal.jobs.loops import Loop, LoopName, of_cluster
from portal.jobs.models import Cluster
from portal.lifecycle.idle_jobs import enforce_idle_rule


@shared_task(name="evenkeel.enforce_idle_rules", ignore_result=True)
def enforce_idle_rules() -> None:
    """Warn idle jobs that hold GPUs, and suspend those that the rule selects."""
    for cluster in active_clusters().select_related("idle_rule"):
        Loop(LoopName.IDLE, cluster.pk).run(of_cluster(cluster), _enforce_idle_rule, cluster)


def _enforce_idle_rule(cluster: Cluster) -> None:
    enforce_idle_rule(cluster=cluster, now=timezone.now())


@shared_task(name="evenkeel.sample_shares", ignore_result=True)
def note_shares() -> None:
    """Store one point of each project's share and use."""
    for cluster in active_clusters():
        Loop(LoopName.SAMPLES, cluster.pk).run(of_cluster(cluster, "shares"), sample_shares, cluster, timezone.now())


@shared_task(name="evenkeel.sample_fairness", ignore_result=True)
def note_fairness() -> None:
    """Store one point of how evenly the jobs of the cluster, each project and each user are slowed down."""
    for cluster in active_clusters():
        item = of_cluster(cluster, "fairness")
        Loop(LoopName.SAMPLES, cluster.pk).run(item, sample_fairness, cluster, timezone.now())
