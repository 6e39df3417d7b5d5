"""Examines clusters for administrators in the browser."""

from __future__ import annotations

import logging

from celery import shared_task
from django.conf import settings
from django.utils import timezone

from portal.execution import executors
from portal.execution.checks.access import examine_access, kept_from_jobs
from portal.execution.checks.costs import examine_api_url, examine_prices
from portal.execution.checks.probes import examine_data, examine_loops, examine_material, examine_stores
from portal.execution.checks.stored import Seen, conclude, last_examination
from portal.jobs.models import Cluster
from scheduling.errors import ExecutorError
from scheduling.executors.base import Finding

logger = logging.getLogger(__name__)


def examine_cluster(cluster: Cluster) -> list[Finding]:
    """Connection, versions, GPUs, clocks, shared storage, checkpoints, and software of jobs. May take a minute."""
    found: list[Finding] = []
    try:
        executor = executors.executor_for(cluster)
        found += executor.examine(settings.EVENKEEL_API_URL, kept_from_jobs())
        found += examine_material(executor)
    except ExecutorError as error:
        found.append(Finding("executor", False, f"cannot be used: {error}", "see its settings"))
    found += [*examine_stores(cluster.pk), *examine_data(cluster.pk), *examine_access(cluster.pk)]
    found += [*examine_api_url(cluster.pk), examine_prices(cluster, timezone.now())]
    return [*found, *examine_loops(cluster.pk, timezone.now())]


@shared_task(name="evenkeel.examine_cluster", ignore_result=True)
def examine(cluster_id: int, began_at: str) -> None:
    cluster = Cluster.objects.get(pk=cluster_id)
    begun = last_examination(cluster)
    if begun["began_at"] is None or begun["began_at"].isoformat() != began_at:
        return
    try:
        found = examine_cluster(cluster)
    except Exception as error:
        logger.exception("the examination of cluster %s", cluster)
        found = [Finding("examination", False, f"{type(error).__name__}: {error}", "see the worker's log")]
    conclude(cluster, begun, [_described(one) for one in found], timezone.now())


def _described(one: Finding) -> Seen:
    result = "unknown" if not one.known else "passed" if one.ok else "failed"
    return Seen(subject=one.subject, result=result, seen=one.seen, fix=one.fix if one.warning or not one.ok else "")
