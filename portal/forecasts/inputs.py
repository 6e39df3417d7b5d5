"""Rows -> scheduling.forecast and back: recorded data, earlier forecasts of starts, and their outcomes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db.models import Max, Q

from portal.jobs.models import Cluster, Job, JobEvent, Run, StartSample
from portal.snapshot.newcomers import arrivals_of
from portal.snapshot.shares import user_key
from portal.snapshot.take import take_snapshot
from portal.throughput.restart_times import restart_times
from scheduling import domain
from scheduling.domain import Snapshot
from scheduling.forecast.arrivals import recorded
from scheduling.forecast.calibration import Calibration, Sample, calibrate
from scheduling.forecast.forecast import Budget, Forecast, Known, Start, foresee
from scheduling.forecast.future import Times
from scheduling.forecast.run_times import Basis, History, Past
from scheduling.lifecycle import TRAINING, WAITING, Event
from scheduling.policies import load_policy
from scheduling.policies.base import Policy, default_duration_s, protection_factor

#: How much history is used.
MOST_PASTS, MOST_ARRIVALS = 4_000, 300
WINDOW = timedelta(days=14)
MOST_CALIBRATED = 5_000
#: How long and how many samples are kept, and how many are taken at a time.
KEPT, MOST_KEPT, MOST_NEW = timedelta(days=30), 50_000, 200
#: A job is sampled when it is first seen, and then each time that its wait has grown by this factor.
_AGAIN = 2.0
_FIRST_S = 30.0


@dataclass(frozen=True)
class Expectation:
    """One forecast of a cluster, calibrated."""

    at: datetime
    forecast: Forecast
    calibration: Calibration
    run_times: Mapping[str, Basis]  # of jobs that wait
    waiting: Sequence[domain.Job] = ()

    def start(self, job: str) -> Start | None:
        said = self.forecast.starts.get(job)
        return self.calibration.apply(said) if said else None


def expect_starts(cluster: Cluster, now: datetime, stopped: Callable[[], bool]) -> Expectation:
    """A forecast from present knowledge. Nothing is written."""
    snapshot = take_snapshot(cluster, now).snapshot
    policy = load_policy(cluster.policy_name, cluster.policy_parameters)
    known = known_of(cluster, snapshot, policy, now)
    forecast = foresee(snapshot, policy, known, seed=cluster.round_epoch, budget=Budget(stopped=stopped))
    waiting = [job for job in snapshot.jobs if not job.gpu_ids]
    run_times = {job.id: known.history.basis(job, 0.0) for job in waiting}
    return Expectation(now, forecast, calibrate(samples_of(cluster, now)), run_times, waiting)


def known_of(cluster: Cluster, snapshot: Snapshot, policy: Policy, now: datetime) -> Known:
    """Recorded data of the cluster until now."""
    trained_s = _trained_s(cluster, now)
    history = History(_pasts(cluster, trained_s), default_duration_s(policy.parameters))
    arrivals = recorded(arrivals_of(cluster, snapshot.nodes, MOST_ARRIVALS))
    return Known(history, trained_s, arrivals, _times(cluster, policy.parameters))


def _trained_s(cluster: Cluster, now: datetime) -> dict[str, float]:
    """Seconds for which each training job has trained."""
    training = Run.objects.filter(job__cluster=cluster, state__in=[state.value for state in TRAINING])
    return {
        str(job): before_s + (now - since).total_seconds()
        for job, before_s, since in training.values_list("job_id", "running_s", "state_since")
    }


def _pasts(cluster: Cluster, trained_s: Mapping[str, float]) -> list[Past]:
    columns = ("job__project__key", "job__owner_id", "job__min_gpus", "running_s", "step", "job__total_steps")
    ended = Run.objects.filter(job__cluster=cluster, has_trained=True, ended_at__isnull=False)
    pasts = [
        Past(project, user_key(owner), gpus, seconds, min(1.0, step / max(1, steps)))
        for project, owner, gpus, seconds, step, steps in ended.order_by("-ended_at").values_list(*columns)[:MOST_PASTS]
    ]
    live = Job.objects.filter(pk__in=[UUID(key) for key in trained_s])
    pasts += [
        Past(project, user_key(owner), gpus, trained_s[str(pk)], over=False)
        for pk, project, owner, gpus in live.values_list("pk", "project__key", "owner_id", "min_gpus")
    ]
    return pasts


def _times(cluster: Cluster, parameters: Any) -> Times:
    measured = restart_times(cluster)
    launch_s = measured.launch_s if measured else Times().launch_s
    stop_s = 2.0 + measured.checkpoint_s if measured else Times().stop_s
    return Times(launch_s, stop_s, protection_factor(parameters) * launch_s)


# Samples -------------------------------------------------------------------------------------------


def samples_of(cluster: Cluster, now: datetime) -> list[Sample]:
    """The preceding window: earlier forecasts, with the outcomes known by now."""
    rows = StartSample.objects.filter(cluster=cluster, made_at__gte=now - WINDOW, made_at__lt=now).order_by("-made_at")
    columns = ("p10_s", "p50_s", "p90_s", "made_at", "waited_s", "started", "job__held_at")
    return [
        Sample(Start(*said), _seconds(made_at, held_at or now) if waited_s is None else waited_s, started)
        for *said, made_at, waited_s, started, held_at in rows.values_list(*columns)[:MOST_CALIBRATED]
    ]


def _seconds(since: datetime, until: datetime) -> float:
    return max(0.0, (until - since).total_seconds())


def record_outcomes(cluster: Cluster) -> int:
    """Close the samples of jobs that no longer wait, or are on hold: they had waited until then. Returns how many."""
    waits = Q(job__run__state__in=[state.value for state in WAITING], job__hold_kind="")
    done = StartSample.objects.filter(cluster=cluster, waited_s=None).exclude(waits)
    rows = list(done.select_related("job__run")[:MOST_KEPT])
    given = JobEvent.objects.filter(kind=Event.ASSIGNED.value, job__in={row.job_id for row in rows})
    starts: dict[Any, list[datetime]] = {}
    for job, at in given.order_by("at").values_list("job_id", "at"):
        starts.setdefault(job, []).append(at)
    for row in rows:
        started = next((at for at in starts.get(row.job_id, ()) if at >= row.made_at), None)
        ended = row.job.run.ended_at if row.job.run else None
        until = started or row.job.held_at or ended or row.made_at
        row.waited_s, row.started = _seconds(row.made_at, until), started is not None
    StartSample.objects.bulk_update(rows, ["waited_s", "started"], batch_size=500)
    return len(rows)


def keep_samples(cluster: Cluster, expected: Expectation) -> int:
    """Store the present forecasts of jobs that are new, or have waited twice as long as when they were last sampled."""
    ids = [UUID(key) for key in expected.forecast.starts]
    jobs = dict(Job.objects.filter(pk__in=ids).values_list("pk", "submitted_at"))
    mine = Q(job__in=ids, waited_s=None)
    last = dict(StartSample.objects.filter(mine).values_list("job_id").annotate(at=Max("made_at")))
    due = [pk for pk, since in jobs.items() if _is_due(since, last.get(pk), expected.at)]
    said = {pk: expected.forecast.starts[str(pk)] for pk in due[:MOST_NEW]}
    rows = [
        StartSample(cluster=cluster, job_id=pk, made_at=expected.at, p10_s=one.p10_s, p50_s=one.p50_s, p90_s=one.p90_s)
        for pk, one in said.items()
    ]
    return len(StartSample.objects.bulk_create(rows))


def _is_due(since: datetime, last: datetime | None, now: datetime) -> bool:
    if last is None:
        return True
    waited_then_s = max(_FIRST_S, (last - since).total_seconds())
    return (now - since).total_seconds() >= _AGAIN * waited_then_s


def prune(now: datetime) -> None:
    StartSample.objects.filter(made_at__lt=now - KEPT).delete()
    newest = StartSample.objects.order_by("-pk").values_list("pk", flat=True)[MOST_KEPT : MOST_KEPT + 1]
    for pk in newest:
        StartSample.objects.filter(pk__lte=pk).delete()
