"""Starts and ends of what-ifs, by the forecast: every variant in futures with the same draws, so that all differences
are due to the variant."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from celery import shared_task
from django.utils import timezone

from accounts.models import User
from accounts.selectors import visible_projects
from portal.core.locks import preview_lock
from portal.core.times import iso
from portal.forecasts import inputs, what_if
from portal.forecasts.basis import Basis, basis_of
from portal.forecasts.what_if import JobQuestion, NodeQuestion
from portal.jobs.models import Cluster, Job
from portal.readmodels.jobs import expected_start
from portal.readmodels.jobs.expected_start import ExpectedStart
from portal.throughput.expected_end import SPREAD
from portal.throughput.job_profiles import job_profiles
from scheduling.domain import Curve, Gang, Snapshot
from scheduling.domain import Job as SeenJob
from scheduling.engine.rounds import plan_round
from scheduling.forecast.calibration import Calibration, calibrate
from scheduling.forecast.forecast import Budget, Forecast, Known, foresee
from scheduling.forecast.next_round import Planned
from scheduling.forecast.what_if import run_time_s, sized, with_job, with_node
from scheduling.policies import load_policy
from scheduling.policies.base import Policy

#: For all variants together: estimated milliseconds, and the emergency brake in seconds of this thread.
_BUDGET_MS, _LONGEST_S, _LEAST_MS = 2_400.0, 6.0, 100.0
MOST_JOBS = 100
#: A smaller change of a start is noise between two futures.
_LEAST_S = 10.0
_TRY_AGAIN_S, _MOST_TRIES = 0.3, 100


@shared_task(name="evenkeel.foresee_what_if", ignore_result=True, bind=True, max_retries=_MOST_TRIES)
def foresee_what_if(self: Any, key: str) -> None:
    """One at a time, like previews: the other processes are left for rounds."""
    question = what_if.question_of(key)
    if question is None:
        return
    with preview_lock() as mine:
        if mine:
            cluster = Cluster.objects.get(pk=question.cluster_id)
            if isinstance(question, JobQuestion):
                what_if.store_answer(key, {"options": options_of(cluster, question)})
            else:
                what_if.store_answer(key, {"node": node_of(cluster, question)})
    if not mine:
        raise self.retry(countdown=_TRY_AGAIN_S)


class _Work:
    """Shared by all variants of one question."""

    def __init__(self, cluster: Cluster, variants: int) -> None:
        self.basis: Basis = basis_of(cluster)
        self.policy: Policy = load_policy(*self.basis.policy)
        self.snapshot: Snapshot = self.basis.planned.snapshot
        self.known: Known = inputs.known_of(cluster, self.snapshot, self.policy, timezone.now())
        self.calibration: Calibration = calibrate(inputs.samples_of(cluster, self.basis.at))
        self._milliseconds = max(_LEAST_MS, _BUDGET_MS / max(1, variants))
        self._until_s = time.thread_time() + _LONGEST_S

    def foresee(self, snapshot: Snapshot) -> Forecast:
        budget = Budget(self._milliseconds, most_futures=8, stopped=lambda: time.thread_time() > self._until_s)
        return foresee(snapshot, self.policy, self.known, seed=self.basis.seed, budget=budget, paired=True)

    def said(self, forecast: Forecast, job: SeenJob) -> ExpectedStart:
        start = forecast.starts.get(job.id)
        if start is not None and start.p90_s > 0:
            start = self.calibration.apply(start)
        return expected_start.said_of(
            self.basis.at.timestamp(),
            start,
            run_time=self.known.history.basis(job, 0.0),
            outcomes=self.calibration.outcomes if self.calibration.fitted else 0,
            why=forecast.unsaid.get(job.id, "unknown"),
        )


# A job -----------------------------------------------------------------------------------------------


def options_of(cluster: Cluster, question: JobQuestion) -> list[dict[str, Any]]:
    work, found = _Work(cluster, len(question.options)), []
    base = replace(work.snapshot, limits={**work.snapshot.limits, **question.snapshot.limits})
    for (gang, duration_s), source in zip(question.options, question.sources, strict=True):
        job = sized(question.job, gang)
        said = work.said(work.foresee(with_job(base, job)), job)
        found.append(
            {
                "type": gang.type,
                "gpus": gang.count,
                "start": expected_start.describe_start(said),
                "end": _end(said, duration_s, SPREAD.get(source, 0.3)),
            }
        )
    return found


def _end(said: ExpectedStart, duration_s: float, spread: float) -> dict[str, Any] | None:
    if said.why:
        return None
    ends = ((said.p10, 1.0 - spread), (said.p50, 1.0), (said.p90, 1.0 + spread))
    low, middle, high = (_at(at + part * duration_s) for at, part in ends)
    return {"low_at": low, "at": middle, "high_at": high, "duration_s": duration_s}


def _at(posix_s: float) -> str | None:
    return iso(datetime.fromtimestamp(posix_s, UTC))


# A node ----------------------------------------------------------------------------------------------


def node_of(cluster: Cluster, question: NodeQuestion) -> dict[str, Any]:
    work = _Work(cluster, 2)
    more = with_node(work.snapshot, question.type) or work.snapshot
    curves = _curves(more)
    base, more = (replace(one, jobs=_drawn_out(one.jobs, curves)) for one in (work.snapshot, more))
    alone, beside = work.foresee(base), work.foresee(more)
    plan = Planned.of(more, plan_round(more, work.policy))
    mine = [job for job in more.jobs if job.project in question.projects]
    waiting = [job for job in mine if not job.gpu_ids]
    running = [job for job in mine if job.gpu_ids]
    shown = [*waiting[:MOST_JOBS], *running[:MOST_JOBS]]
    names = _names(question.user_id, [job.id for job in shown])
    others = [job for job in work.snapshot.jobs if job.project not in question.projects]
    now = work.basis.planned
    return {
        "as_of": iso(work.basis.at),
        "waiting_total": len(waiting),
        "waiting": [_waiting(work, job, alone, beside, names) for job in waiting[:MOST_JOBS] if job.id in names],
        "running_total": len(running),
        "running": [
            {
                "job": names[job.id],
                "now": _gang(job.gang),
                "before": _gang(_next(job, now)),
                "after": _gang(_next(job, plan)),
            }
            for job in running[:MOST_JOBS]
            if job.id in names
        ],
        "others_sooner": sum(_sooner_s(job, alone, beside) >= _LEAST_S for job in others),
        "others_growing": sum(_count(_next(job, plan)) > _count(_next(job, now)) for job in others if job.gpu_ids),
        "futures": min(alone.futures, beside.futures),
    }


def _curves(more: Snapshot) -> dict[str, dict[str, Curve]]:
    """By job, up to the number of GPUs with the node: rounds only know curves up to the number without it."""
    types = Counter(node.type for node in more.nodes for _ in node.gpu_ids)
    rows = Job.objects.filter(pk__in=[UUID(job.id) for job in more.jobs]).select_related("run")
    known = job_profiles(list(rows.prefetch_related("project", "model_type")), types)
    return {str(pk): {kind: profile.curve for kind, profile in found.items()} for pk, found in known.items()}


def _drawn_out(jobs: Iterable[SeenJob], curves: dict[str, dict[str, Curve]]) -> tuple[SeenJob, ...]:
    return tuple(replace(job, curves=curves.get(job.id, job.curves)) for job in jobs)


def _waiting(
    work: _Work, job: SeenJob, alone: Forecast, beside: Forecast, names: dict[str, dict[str, Any]]
) -> dict[str, Any]:
    before, after = work.said(alone, job), work.said(beside, job)
    gangs = alone.gangs.get(job.id), beside.gangs.get(job.id)
    return {
        "job": names[job.id],
        "start_before": expected_start.describe_start(before),
        "start_after": expected_start.describe_start(after),
        "sooner_s": round(_sooner_s(job, alone, beside), 1),
        "gang_before": _gang(gangs[0]),
        "gang_after": _gang(gangs[1]),
        "end_before_at": _ends(before, job, gangs[0]),
        "end_after_at": _ends(after, job, gangs[1]),
    }


def _sooner_s(job: SeenJob, alone: Forecast, beside: Forecast) -> float:
    """The difference between the medians of its expected starts; 0 if one of them is unknown."""
    before, after = alone.starts.get(job.id), beside.starts.get(job.id)
    return before.p50_s - after.p50_s if before is not None and after is not None else 0.0


def _ends(said: ExpectedStart, job: SeenJob, gang: Gang | None) -> str | None:
    seconds = run_time_s(job, gang)
    return None if said.why or seconds is None else _at(said.p50 + seconds)


def _next(job: SeenJob, planned: Planned) -> Gang | None:
    move = planned.moves.get(job.id)
    return move.gang if move is not None else job.gang


def _count(gang: Gang | None) -> int:
    return gang.count if gang is not None else 0


def _gang(gang: Gang | None) -> dict[str, Any] | None:
    return {"type": gang.type, "count": gang.count} if gang is not None else None


def _names(user_id: int, ids: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Names of jobs that the user may still see."""
    projects = visible_projects(User.objects.get(pk=user_id))
    rows = Job.objects.filter(pk__in=[UUID(key) for key in ids], project__in=projects)
    return {str(pk): {"number": number, "name": name} for pk, number, name in rows.values_list("pk", "number", "name")}
