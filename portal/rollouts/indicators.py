"""The three indicators of a promoted policy, measured and predicted by the same definitions.

Over an interval: wait p95: of all jobs that queued for GPUs in it, the 95th percentile of the seconds that each did,
also after a preemption; time on hold or waiting for dependencies, and waits before the interval, do not count. Variance
of slowdown: population variance over jobs that were submitted and completed in it. Utilisation: mean share of the GPUs
that trained, over the time in which some job waited: idle GPUs without waiting jobs are no fault of the policy.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from itertools import pairwise
from statistics import fmean, pvariance
from typing import Any

from django.db import connection
from django.db.models import Avg, Count, F, Value, Variance
from django.db.models.functions import Coalesce, Least

from portal.core.packed_json import unpack
from portal.jobs.clusters import speedup
from portal.jobs.models import Cluster, ClusterSample, Run
from portal.lab.models import Simulation, Trial
from portal.lab.results import Row, job_rows
from scheduling.lifecycle import LIVE, QUEUED
from scheduling.simulator.output.report import percentile

#: The newest runs in an interval; more are beyond what is guarded.
MOST_RUNS = 50_000


@dataclass(frozen=True, slots=True)
class Indicators:
    """None: no data. `waits`, `ended`: number of jobs behind them; `samples`: points with waiting jobs."""

    wait_p95_s: float | None
    slowdown_variance: float | None
    utilisation: float | None
    waits: int
    ended: int
    samples: int

    def values(self) -> dict[str, float | None]:
        return {key: getattr(self, key) for key in KEYS}

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


KEYS = ("wait_p95_s", "slowdown_variance", "utilisation")


def of_json(value: dict[str, Any] | None) -> Indicators | None:
    return Indicators(**value) if value else None


# Measured ------------------------------------------------------------------------------------------


def measure(cluster: Cluster, start: datetime, end: datetime) -> Indicators:
    """From the database for [start, end); three queries. `end` is now, or past."""
    wait, waits = _waits(cluster, start, end)
    variance, ended = _slowdowns(cluster, start, end)
    used, samples = _used(cluster, start, end)
    return Indicators(wait, variance, used, waits, ended, samples)


#: `since`: when the job could have started. A run's first change in the interval ends what began before it.
_WAITS = """
    WITH mine AS (
        SELECT run.id, run.job_id, run.state, run.state_since, run.ended_at, run.created_at, run.reason_token,
            job.hold_kind, greatest(coalesce(job.eligible_at, job.submitted_at), (
                SELECT max(other.ended_at) FROM jobs_dependency dependency
                JOIN jobs_job awaited ON awaited.id = dependency.on_id JOIN jobs_run other ON other.id = awaited.run_id
                WHERE dependency.job_id = job.id)) AS since
        FROM jobs_run run JOIN jobs_job job ON job.id = run.job_id
        WHERE job.cluster_id = %(cluster)s AND run.created_at < %(end)s
            AND (run.state = ANY(%(live)s) OR run.ended_at > %(start)s)
            AND NOT EXISTS (
                SELECT FROM jobs_dependency one WHERE one.job_id = job.id AND one.kind = 'singleton')
        ORDER BY run.created_at DESC LIMIT %(most)s
    ), changes AS (
        SELECT event.job_id, event.run_id, event.from_state, event.to_state, event.at,
            lag(event.at) OVER own AS before, lead(event.at) OVER own AS after
        FROM jobs_jobevent event JOIN mine ON mine.id = event.run_id AND mine.job_id = event.job_id
        WHERE event.at >= %(start)s AND event.at < %(end)s AND event.from_state <> ''
        WINDOW own AS (PARTITION BY event.run_id ORDER BY event.id)
    ), spells AS (
        SELECT mine.job_id, greatest(%(start)s, mine.since, mine.created_at, changes.before) AS began,
            changes.at AS ended
        FROM changes JOIN mine ON mine.id = changes.run_id WHERE changes.from_state = ANY(%(queued)s)
        UNION ALL
        SELECT mine.job_id, greatest(%(start)s, mine.since, changes.at), %(end)s
        FROM changes JOIN mine ON mine.id = changes.run_id
        WHERE changes.after IS NULL AND changes.to_state = ANY(%(queued)s) AND mine.hold_kind = ''
            AND mine.reason_token <> 'dependency'
        UNION ALL
        SELECT mine.job_id, greatest(%(start)s, mine.since, mine.state_since), %(end)s
        FROM mine WHERE mine.state = ANY(%(queued)s) AND mine.hold_kind = '' AND mine.reason_token <> 'dependency'
            AND mine.state_since < %(end)s AND NOT EXISTS (SELECT FROM changes WHERE changes.run_id = mine.id)
    )
    SELECT percentile_cont(0.95) WITHIN GROUP (ORDER BY waited.seconds), count(*) FROM (
        SELECT sum(extract(epoch FROM ended - began))::float AS seconds FROM spells WHERE began <= ended GROUP BY job_id
    ) waited"""


def _waits(cluster: Cluster, start: datetime, end: datetime) -> tuple[float | None, int]:
    """The 95th percentile of the seconds that jobs queued, linearly interpolated; and the number of jobs."""
    values: dict[str, Any] = {
        "cluster": cluster.pk,
        "start": start,
        "end": end,
        "live": sorted(state.value for state in LIVE),
        "queued": sorted(state.value for state in QUEUED),
        "most": MOST_RUNS,
    }
    with connection.cursor() as cursor:
        cursor.execute(_WAITS, values)
        found: tuple[float | None, int] = cursor.fetchone()
        return found


def _slowdowns(cluster: Cluster, start: datetime, end: datetime) -> tuple[float | None, int]:
    ended = Run.objects.filter(job__cluster=cluster, job__run=F("pk"), ended_at__gte=start, ended_at__lt=end)
    since = ended.annotate(since=Coalesce("job__eligible_at", "job__submitted_at"))
    known = since.filter(since__gte=start, slowdown__isnull=False).order_by()
    found = known.aggregate(variance=Variance("slowdown"), n=Count("pk"))
    return (found["variance"] if found["n"] > 1 else None), found["n"]


def _used(cluster: Cluster, start: datetime, end: datetime) -> tuple[float | None, int]:
    """Over the points in which some job waited."""
    points = ClusterSample.objects.filter(cluster=cluster, at__gte=start, at__lt=end, waiting__gt=0, gpus_total__gt=0)
    share = Least(F("gpus_training") / F("gpus_total"), Value(1.0))
    found = points.filter(gpus_training__isnull=False).order_by().aggregate(mean=Avg(share), n=Count("pk"))
    return found["mean"], found["n"]


# Predicted -----------------------------------------------------------------------------------------


def predict(trial: Trial, guard_s: float) -> Indicators | None:
    """From finished trials of the same policy in the simulation, as means over their seeds; None if there is none."""
    alike = Trial.objects.filter(
        simulation=trial.simulation_id, role=trial.role, label=trial.label, packed__isnull=False
    )
    # an emulated cluster trains this many times as fast as a simulation from a catalogue or a trace
    simulation = Simulation.objects.only("spec", "cluster").get(pk=trial.simulation_id)
    kind = simulation.spec["workload"]["kind"]
    factor = 1.0 if kind == "history" else speedup(simulation.cluster_id)
    found = [_of_trial(one, guard_s * factor, factor) for one in alike]
    return _mean(found) if found else None


def _of_trial(trial: Trial, guard_s: float, factor: float) -> Indicators:
    """`guard_s` of simulated time: no wait in an interval can be longer, and no longer job fits in."""
    jobs = job_rows(trial)
    waits = [min(job["wait_s"], guard_s) / factor for job in jobs]
    quick = [job for job in jobs if job["finished_s"] is not None and job["finished_s"] - job["arrival_s"] <= guard_s]
    slow = [job["slowdown"] for job in quick if job["slowdown"] is not None]
    used = _used_while_waiting(jobs, unpack(trial.packed))
    return Indicators(
        wait_p95_s=percentile(waits, 0.95) if waits else None,
        slowdown_variance=pvariance(slow) if len(slow) > 1 else None,
        utilisation=used,
        waits=len(waits),
        ended=len(slow),
        samples=0,
    )


def _used_while_waiting(jobs: Iterable[Row], detail: dict[str, Any]) -> float | None:
    """Each part of the curve is weighted by the time that some job waited for its first start in it."""
    curve, end = detail["utilisation"], detail["end_s"]
    if not curve:
        return None
    until = [(job["arrival_s"], end if job["started_s"] is None else job["started_s"]) for job in jobs]
    waited = _merged(spell for spell in until if spell[1] > spell[0])
    weighed = total = 0.0
    stretches = pairwise([*(at for at, _ in curve), end])
    for (start, stop), (_, share) in zip(stretches, curve, strict=True):
        seconds = sum(max(0.0, min(stop, last) - max(start, first)) for first, last in waited)
        weighed, total = weighed + share * seconds, total + seconds
    return weighed / total if total > 0 else None


def _merged(spells: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    found: list[tuple[float, float]] = []
    for start, end in sorted(spells):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return found


def _mean(of: Sequence[Indicators]) -> Indicators:
    def middle(key: str) -> float | None:
        values = [value for one in of if (value := one.values()[key]) is not None]
        return fmean(values) if values else None

    return Indicators(
        **{key: middle(key) for key in KEYS},
        waits=sum(one.waits for one in of),
        ended=sum(one.ended for one in of),
        samples=0,
    )
