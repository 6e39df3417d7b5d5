"""Decisions as they were made, kept by bytes, and the cluster's history in points."""

from __future__ import annotations

import json
import zlib
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db.models import Count, Sum

from accounts.ledger import current_prices
from portal.jobs.models import (
    Accelerator,
    Cluster,
    ClusterSample,
    Decision,
    Hold,
    JobEvent,
    MetricPoint,
    Run,
)
from portal.jobs.snapshots import ClusterView
from scheduling.domain import Plan
from scheduling.lifecycle import QUEUED

KEEP_DECISION_BYTES = 256 * 1024 * 1024
KEEP_EVENTS = timedelta(days=90)
KEEP_SAMPLES = timedelta(days=14)
#: A run with more metric points than this keeps every second one of the older half.
MAX_POINTS = 4_000


def _plain(value: Any) -> Any:
    return sorted(value) if isinstance(value, (set, frozenset)) else str(value)


def store(*, view: ClusterView, plan: Plan, seconds: float, now: datetime) -> Decision:
    """Keep a plan that moves something, with the snapshot that it came from."""
    packed = zlib.compress(json.dumps(asdict(view.snapshot), default=_plain).encode(), 6)
    cluster = view.cluster
    plain = json.dumps(asdict(plan), default=_plain)
    return Decision.objects.create(
        cluster=cluster,
        round=cluster.round_epoch + 1,
        at=now,
        policy_name=cluster.policy_name,
        policy_parameters=cluster.policy_parameters,
        plan=json.loads(plain),
        snapshot=packed,
        size_bytes=len(packed) + len(plain),
        seconds=seconds,
    )


def sample(cluster: Cluster, now: datetime) -> None:
    prices = current_prices(now)
    held = Hold.objects.filter(run__job__cluster=cluster, during__upper_inf=True)
    types = list(held.values_list("accelerator__node__accelerator_type", flat=True))
    ClusterSample.objects.create(
        cluster=cluster,
        at=now,
        gpus_total=Accelerator.objects.filter(node__cluster=cluster, present=True, node__lost=False).count(),
        gpus_held=len(types),
        queued=Run.objects.filter(job__cluster=cluster, state__in=list(QUEUED)).count(),
        variance=cluster.figures.get("variance"),
        spend_micro_per_hour=sum(prices.get(kind, 0) for kind in types),
    )


def prune(now: datetime) -> None:
    JobEvent.objects.filter(at__lt=now - KEEP_EVENTS).delete()
    ClusterSample.objects.filter(at__lt=now - KEEP_SAMPLES).delete()
    _prune_decisions()
    crowded = MetricPoint.objects.values("run").annotate(n=Count("pk")).filter(n__gt=MAX_POINTS)
    for run_id in list(crowded.values_list("run", flat=True)[:1_000]):
        _thin(run_id)


def _thin(run_id: UUID) -> None:
    """Every second point of a crowded run's older half goes."""
    points = list(MetricPoint.objects.filter(run=run_id).order_by("at").values_list("pk", flat=True))
    MetricPoint.objects.filter(pk__in=points[: len(points) // 2 : 2]).delete()


def _prune_decisions() -> None:
    """The oldest go first, until what is left fits."""
    total = Decision.objects.aggregate(n=Sum("size_bytes"))["n"] or 0
    for pk, size in Decision.objects.order_by("pk").values_list("pk", "size_bytes").iterator():
        if total <= KEEP_DECISION_BYTES:
            return
        Decision.objects.filter(pk=pk).delete()
        total -= size
