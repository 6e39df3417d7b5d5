"""When a job ends if it keeps its GPUs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from portal.jobs.models import Accelerator, Assignment, Job, Run
from portal.throughput.available import cluster_types
from portal.throughput.job_profiles import job_profiles
from portal.throughput.slowdown import source_at, steps_per_s_at
from scheduling.lifecycle import LIVE, TRAINING, WAITING, State
from scheduling.throughput.curves import Profile

#: Range of an estimate: how far measured ends deviated.
SPREAD = {"measured": 0.05, "user": 0.15, "catalogue": 0.15, "estimated": 0.3, "trial": 0.5}
#: "Until I cancel it": an end this far away counts as none (and no date can hold it).
_NO_END_IN_SIGHT_S = 50 * 365 * 86_400.0


@dataclass(frozen=True)
class EndFacts:
    """Data from which the ends of some jobs follow, at one moment."""

    now: datetime
    types: dict[int, dict[str, int]]  # by cluster
    gpus: dict[UUID, list[Accelerator]]
    profiles: dict[UUID, dict[str, Profile]]
    totals: dict[UUID, dict[str, float]]


def end_facts(jobs: Iterable[Job], now: datetime) -> EndFacts:
    jobs = list(jobs)
    # a newly submitted job has nothing else
    touched = [job for job in jobs if job.run is None or job.run.had_gpus]
    live = [job for job in jobs if job.run and State(job.run.state) in LIVE]
    types = {cluster_id: cluster_types(cluster_id) for cluster_id in {job.cluster_id for job in jobs}}
    return EndFacts(now, types, _planned(touched), _profiles(live, types), _totals(jobs))


def _planned(jobs: list[Job]) -> dict[UUID, list[Accelerator]]:
    gpus: dict[UUID, list[Accelerator]] = defaultdict(list)
    if runs := [job.run_id for job in jobs if job.run_id]:
        planned = Assignment.objects.filter(run__in=runs, during__upper_inf=True).select_related("accelerator__node")
        for assignment in planned.order_by("accelerator__node__name", "accelerator__index"):
            gpus[assignment.run_id].append(assignment.accelerator)
    return gpus


def _totals(jobs: list[Job]) -> dict[UUID, dict[str, float]]:
    """Times and rescales over all attempts of each job; earlier attempts are read if there are any."""
    totals: dict[UUID, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    names = ("queueing_s", "launching_s", "running_s", "rescales")
    rows = [job.run for job in jobs if job.run]
    if retried := [job for job in jobs if job.run is None or job.run.attempt > 1]:
        earlier = Run.objects.filter(job__in=retried).exclude(pk__in=[job.run_id for job in retried])
        rows += earlier.order_by()
    for run in rows:
        for name in names:
            totals[run.job_id][name] += getattr(run, name)
    return totals


def _profiles(jobs: list[Job], types: Mapping[int, Mapping[str, int]]) -> dict[UUID, dict[str, Profile]]:
    found: dict[UUID, dict[str, Profile]] = {}
    for cluster_id, there in types.items():
        found |= job_profiles([job for job in jobs if job.cluster_id == cluster_id], there)
    return found


def expected_end(
    job: Job, run: Run, steps_per_s: float | None, source: str, now: datetime, left_s: float | None = None
) -> tuple[datetime | None, datetime | None, datetime | None]:
    """The end, and its range: remaining steps at its throughput, or `left_s` in training, after the rest of a
    launch."""
    state = State(run.state)
    if not steps_per_s or state not in LIVE or state in WAITING:
        return None, None, None
    most_s = _NO_END_IN_SIGHT_S if left_s is None else left_s
    train_s = max(0, job.total_steps - run.step) / steps_per_s
    if min(train_s, most_s) >= _NO_END_IN_SIGHT_S:
        return None, None, None
    launch_s = run.launch_s if state not in TRAINING else 0.0
    spread = SPREAD.get(source, 0.3)
    ends_s = (train_s, train_s * (1 - spread), train_s * (1 + spread))
    middle, low, high = (now + timedelta(seconds=launch_s + min(end_s, most_s)) for end_s in ends_s)
    return middle, low, high


def settled_times(job: Job, facts: EndFacts) -> dict[str, float]:
    """Times until it entered its present state: these do not grow with the clock."""
    totals = facts.totals[job.pk]
    return {name: round(totals[name], 3) for name in ("queueing_s", "launching_s", "running_s")}


def times_of(job: Job, run: Run, facts: EndFacts) -> dict[str, float]:
    times, state = settled_times(job, facts), State(run.state)
    if state in LIVE:
        heading = "queueing_s" if state in WAITING else "running_s" if state in TRAINING else "launching_s"
        times[heading] = round(times[heading] + max(0.0, (facts.now - run.state_since).total_seconds()), 3)
    return times


def predicted_speed(
    job: Job, gpus: list[Accelerator], facts: EndFacts
) -> tuple[float | None, str | None, float | None, int]:
    """Steps/s on the job's GPUs, with the basis: source, age, samples."""
    profile = facts.profiles.get(job.pk, {}).get(gpus[0].node.accelerator_type) if gpus else None
    if profile is None:
        return None, None, None, 0
    number, source = profile.numbers.get(len(gpus)), source_at(profile, len(gpus))
    predicted = steps_per_s_at(profile, len(gpus))
    if number is None:
        return predicted, source, None, 0
    return predicted, source, number.age_s(facts.now.timestamp()), number.samples


def expected_end_of(job: Job, facts: EndFacts, left_s: float | None = None) -> datetime | None:
    """When the job ends if it keeps its GPUs, after at most `left_s` in training; None if nothing is known."""
    run = job.run
    assert run is not None
    predicted, source, _, _ = predicted_speed(job, facts.gpus.get(run.pk, []), facts)
    now_steps_per_s = run.steps_per_s if State(run.state) in TRAINING else None
    return expected_end(job, run, predicted or now_steps_per_s, source or "trial", facts.now, left_s)[0]


def time_left_s(job: Job, run: Run, facts: EndFacts) -> float | None:
    """Training time that its max_duration leaves."""
    return (
        max(0.0, job.max_duration_s - times_of(job, run, facts)["running_s"])
        if job.max_duration_s is not None
        else None
    )
