"""Retention of the cluster's history except decisions: points for charts, and the lifetime of rows."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.conf import settings
from django.db.models import Sum

from accounts.ledger import current_prices
from portal.history import fairness, metrics, shares
from portal.jobs import event_months
from portal.jobs.access import waiting_for_gpus
from portal.jobs.loops import Loop, LoopName, forget_old, step
from portal.jobs.models import Accelerator, Cluster, ClusterSample, Hold, Job, Run
from portal.reporting import resources
from portal.snapshot import decisions
from portal.snapshot.engine_jobs import taken_gpus
from scheduling.lifecycle import QUEUED, TRAINING


def sample(cluster: Cluster, now: datetime) -> None:
    prices = current_prices(now, cluster.name)
    held = Hold.objects.filter(run__job__cluster=cluster, during__upper_inf=True)
    rows = list(held.values_list("accelerator", "accelerator__node__accelerator_type", "share_percent"))
    there = Accelerator.objects.filter(node__cluster=cluster, present=True, node__lost=False)
    training = held.filter(run__state__in=[state.value for state in TRAINING])
    ClusterSample.objects.create(
        cluster=cluster,
        at=now,
        # GPUs of the engine's other jobs are not part of our capacity.
        gpus_total=there.count() - len(taken_gpus([cluster.pk])),
        gpus_held=len({gpu for gpu, _, _ in rows}),
        gpus_training=(training.aggregate(n=Sum("share_percent"))["n"] or 0) / 100,
        queued=Run.objects.filter(job__cluster=cluster, state__in=list(QUEUED)).count(),
        waiting=Job.objects.filter(waiting_for_gpus(), cluster=cluster).count(),
        variance=cluster.figures.get("variance"),
        spend_micro_per_hour=sum(prices.get(kind, 0) * percent for _, kind, percent in rows) // 100,
    )


def prune(now: datetime) -> None:
    """Keep events, samples, decisions and metrics within their limits."""
    loop = Loop(LoopName.PRUNING)
    loop.run(step("partitions of events"), event_months.ensure, now)
    limit = now - timedelta(days=settings.EVENKEEL_KEEP.events_days)
    loop.run(step("old events"), event_months.drop_before, limit)
    loop.run(step("cluster samples"), _prune_samples, now)
    loop.run(step("share samples"), shares.prune, now)
    loop.run(step("fairness samples"), fairness.prune, now)
    loop.run(step("resource samples"), resources.prune, now)
    loop.run(step("decisions"), decisions.prune)
    loop.run(step("metrics"), metrics.prune, now)
    loop.run(step("failures"), forget_old, now)


def _prune_samples(now: datetime) -> None:
    kept = timedelta(days=settings.EVENKEEL_KEEP.samples_days)
    ClusterSample.objects.filter(at__lt=now - kept).delete()
