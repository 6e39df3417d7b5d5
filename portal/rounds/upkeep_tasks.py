"""Periodic upkeep: samples, pruning, audit heads, fair shares of sites."""

from __future__ import annotations

import logging

from celery import shared_task
from django.utils import timezone

from portal.execution import executors
from portal.history import audit_heads
from portal.jobs.clusters import active_clusters
from portal.jobs.loops import Loop, LoopName, of_cluster
from portal.jobs.models import Cluster
from portal.rounds import pruning
from portal.snapshot import site_shares
from scheduling.errors import ExecutorError

logger = logging.getLogger(__name__)


@shared_task(name="evenkeel.sample_cluster", ignore_result=True)
def sample_cluster() -> None:
    """Store one point of the overview's sparklines per cluster."""
    for cluster in active_clusters():
        Loop(LoopName.SAMPLES, cluster.pk).run(of_cluster(cluster, "load"), pruning.sample, cluster, timezone.now())


@shared_task(name="evenkeel.read_site_shares", ignore_result=True)
def read_site_shares() -> None:
    """Read the fair shares of sites' own Slurm, if a policy uses them."""
    for cluster in active_clusters():
        Loop(LoopName.SAMPLES, cluster.pk).run(of_cluster(cluster, "site shares"), _read_site_shares, cluster)


def _read_site_shares(cluster: Cluster) -> None:
    if site_shares.are_read(cluster):
        try:
            site_shares.note(cluster.pk, executors.executor_for(cluster).site_shares())
        except ExecutorError as error:
            logger.warning("fair share of cluster %s: %s", cluster, error)


@shared_task(name="evenkeel.prune", ignore_result=True)
def prune() -> None:
    """Keep events, metrics, samples and decisions within their limits."""
    pruning.prune(timezone.now())


@shared_task(name="evenkeel.note_audit_head", ignore_result=True)
def note_audit_head() -> None:
    """Store the present head of the audit log."""
    audit_heads.note_head()
