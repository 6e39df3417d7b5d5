"""Work that previews leave to workers: the snapshot for the next one, and when the job would start."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from statistics import median
from typing import Any

from celery import shared_task
from django.core.cache import cache
from django.utils import timezone

from portal.core.locks import preview_lock
from portal.core.money import CURRENCY
from portal.core.times import iso
from portal.forecasts import inputs, previews
from portal.forecasts.basis import Basis, basis_of, renew
from portal.forecasts.previews import Question
from portal.jobs.models import Cluster
from portal.readmodels.jobs import expected_start
from portal.readmodels.jobs.expected_start import ExpectedStart
from portal.throughput.expected_end import SPREAD
from scheduling.domain import Gang
from scheduling.forecast.calibration import LONGEST_S, calibrate
from scheduling.forecast.forecast import Budget, Forecast, Known, Start, foresee
from scheduling.policies import load_policy
from scheduling.policies.base import Policy

#: With and without the new jobs, each: the estimated budget, and the emergency brake in seconds of this thread.
_BUDGET_MS, _LONGEST_S = 500.0, 1.0
#: Smaller changes of a start, in seconds or as a fraction of its wait, are noise between two futures.
_LEAST_LATER_S, _LEAST_PART = 10.0, 0.05
MOST_DELAYED = 10
#: Lifetime of a running preview's mark; a later request for the answer sends the task again.
_TRY_AGAIN_S, _MOST_TRIES = 0.3, 60
_KEPT_S = 60


@shared_task(name="evenkeel.renew_preview_basis", ignore_result=True)
def renew_basis(cluster_id: int) -> None:
    """Make a new snapshot for previews."""
    renew(Cluster.objects.get(pk=cluster_id))


@shared_task(name="evenkeel.foresee_preview", ignore_result=True, bind=True, max_retries=_MOST_TRIES)
def foresee_preview(self: Any, preview_id: str) -> None:
    """When the job of a preview would start, and which jobs would start later; one preview at a time."""
    question = previews.question_of(preview_id)
    if question is None:
        return
    with preview_lock() as mine:
        if mine:
            cluster = Cluster.objects.get(pk=question.cluster_id)
            previews.store_forecast(preview_id, foresee_question(cluster, question))
    if not mine:
        raise self.retry(countdown=_TRY_AGAIN_S)


def foresee_question(cluster: Cluster, question: Question) -> dict[str, Any]:
    basis = basis_of(cluster)
    policy = load_policy(*basis.policy)
    known = inputs.known_of(cluster, basis.planned.snapshot, policy, timezone.now())
    joined = replace(
        basis.planned.snapshot,
        jobs=(*basis.planned.snapshot.jobs, *question.newcomers),
        limits={**basis.planned.snapshot.limits, **question.limits},
        pairs={**basis.planned.snapshot.pairs, **question.pairs},
    )
    beside = foresee(joined, policy, known, seed=basis.seed, budget=_budget(), paired=True)
    first = question.newcomers[0]
    calibration = calibrate(inputs.samples_of(cluster, basis.at))
    start = (
        Start(question.boot_s, question.boot_s, question.boot_s) if question.starts_now else beside.starts.get(first.id)
    )
    if start is not None and not question.starts_now:
        start = calibration.apply(start)
    gang = question.gang or beside.gangs.get(first.id) or _least(question)
    delayed = _delayed(_alone(cluster, basis, policy, known), beside)
    said = expected_start.said_of(
        basis.at.timestamp(),
        start,
        run_time=known.history.basis(first, 0.0),
        outcomes=calibration.outcomes if calibration.fitted else 0,
        why=beside.unsaid.get(first.id, "unknown"),
    )
    return {
        "as_of": iso(basis.at),
        "start": expected_start.describe_start(said),
        "gang": previews.describe_gang(gang, first.gpu_milli // 10),
        **_end(said, gang, question),
        "delayed": [
            {"job": key, "later_s": round(later_s, 1), "start_before_at": iso(basis.at + timedelta(seconds=before_s))}
            for later_s, before_s, key in delayed[:MOST_DELAYED]
        ],
        "others_delayed": len(delayed),
        "futures": beside.futures,
    }


def _budget() -> Budget:
    until_s = time.thread_time() + _LONGEST_S
    return Budget(milliseconds=_BUDGET_MS, most_futures=12, stopped=lambda: time.thread_time() > until_s)


def _alone(cluster: Cluster, basis: Basis, policy: Policy, known: Known) -> Forecast:
    """Without the new jobs: shared by all previews of one snapshot."""
    key = f"preview-alone/{cluster.pk}/{basis.at.timestamp()}"
    found: Forecast | None = cache.get(key)
    if found is None:
        found = foresee(basis.planned.snapshot, policy, known, seed=basis.seed, budget=_budget(), paired=True)
        cache.set(key, found, _KEPT_S)
    return found


def _delayed(alone: Forecast, beside: Forecast) -> list[tuple[float, float, str]]:
    """(seconds later, seconds until its start without the new jobs, job), the largest delay first."""
    found = []
    for key, before in alone.starts.items():
        after = beside.starts.get(key)
        if after is None or not (before.simulated and after.simulated):
            continue
        later_s = median(b - a for a, b in zip(alone.each[key], beside.each[key], strict=False))
        if later_s >= max(_LEAST_LATER_S, _LEAST_PART * before.p50_s) and before.p50_s < LONGEST_S:
            found.append((later_s, before.p50_s, key))
    return sorted(found, reverse=True)


def _least(question: Question) -> Gang | None:
    """The least GPUs on which it may run, on the fastest type."""
    found = [(count, cost["duration_s"], kind) for (kind, count), cost in question.costs.items()]
    if not found:
        return None
    count, _, kind = min(found)
    return Gang(kind, count)


def _end(said: ExpectedStart, gang: Gang | None, question: Question) -> dict[str, Any]:
    """If it kept its first GPUs."""
    cost = question.costs.get((gang.type, gang.count)) if gang else None
    if cost is None or said.why:
        return {"end": None, "cost": None}
    spread = SPREAD.get(cost["source"], 0.3)
    ends = (
        (said.p10, 1.0 - spread),
        (said.p50, 1.0),
        (said.p90, 1.0 + spread),
    )
    low, middle, high = (iso(datetime.fromtimestamp(at + part * cost["duration_s"], UTC)) for at, part in ends)
    return {
        "end": {"low_at": low, "at": middle, "high_at": high, "duration_s": cost["duration_s"]},
        "cost": {"low": cost["low"], "amount": cost["amount"], "high": cost["high"], "currency": CURRENCY},
    }
