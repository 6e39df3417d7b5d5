"""Predicts when pending jobs start: simulates several futures of the present queue and combines them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random

import numpy as np

from scheduling.capacity.cluster_view import queue_key
from scheduling.domain import Gang, Job, Snapshot
from scheduling.forecast.arrivals import Arrival, drawn
from scheduling.forecast.feasibility import Reach
from scheduling.forecast.future import Future, Times
from scheduling.forecast.run_times import Basis, History, RunTime
from scheduling.forecast.workload import Road
from scheduling.lifecycle import QUEUED, State
from scheduling.policies.base import Policy
from scheduling.policies.capabilities import Needs, ScoresJobs

#: The first jobs of the queue are simulated; the starts of the others follow from the work ahead of them.
MOST_SIMULATED = 500
#: Cost of one round in milliseconds, on the machine where it was measured: fixed, and for each job in it. For policies
#: that rank and backfill, policies with a linear program, strict queue order, and others. Then for each user of a
#: fair-share tree.
_RANKED, _SOLVED, _STRICT, _PLAIN, _PER_USER = (0.3, 0.018), (0.5, 0.014), (0.15, 0.004), (0.15, 0.016), 0.005
_PER_FUTURE = 0.05  # for each job: to set up the future
#: Numbers of new arrivals in futures that are compared with others: no job has one of them.
_BEYOND = 10**12


@dataclass(frozen=True, slots=True)
class Budget:
    """In estimated milliseconds, not in elapsed ones: same seed, same answer.

    `stopped` is an emergency brake for callers in a hurry: it is called before each round, and an interrupted future is
    discarded.
    """

    milliseconds: float = 1_000.0
    most_futures: int = 24
    least_futures: int = 3
    stopped: Callable[[], bool] = lambda: False


@dataclass(frozen=True, slots=True)
class Known:
    """Recorded data: durations of past jobs, training times of running ones, and arrivals."""

    history: History
    trained_s: Mapping[str, float]
    arrivals: Sequence[Arrival] = ()
    times: Times = field(default_factory=Times)


@dataclass(frozen=True, slots=True)
class Start:
    """Seconds from now, by the futures; `simulated` False: from the work ahead of the job, because it is behind the
    simulated ones or most futures ended before it started."""

    p10_s: float
    p50_s: float
    p90_s: float
    simulated: bool = True
    least_s: float = 0.0  # windows block it until then, whatever the calibration says


@dataclass(frozen=True, slots=True)
class Forecast:
    """For every pending job: when it starts, or why that cannot be predicted."""

    now: float
    starts: Mapping[str, Start]
    unsaid: Mapping[str, str]  # held | dependency | never | no_profile | node_unavailable | limit | unknown
    futures: int
    rounds: int
    run_times: Mapping[Basis, int]  # the basis of the run times of running and simulated jobs
    gangs: Mapping[str, Gang] = field(default_factory=dict)  # on which most of the futures started each job
    each: Mapping[str, tuple[float, ...]] = field(default_factory=dict)  # seconds to its start by future, where paired


def foresee(
    snapshot: Snapshot,
    policy: Policy,
    known: Known,
    seed: int = 0,
    budget: Budget | None = None,
    *,
    paired: bool = False,
) -> Forecast:
    """`paired`: two forecasts with one seed, of snapshots that differ in a few jobs, draw the same values for all other
    jobs."""
    budget = budget or Budget()
    # 1 pending jobs in the policy's order; jobs that cannot be predicted
    reach = Reach(snapshot)
    unsaid = {job.id: why for job in snapshot.jobs if not job.gpu_ids and (why := reach.why_not(job))}
    waiting = [_queued(job) for job in snapshot.jobs if not job.gpu_ids and job.id not in unsaid]
    waiting = in_order(snapshot, policy, waiting)
    ahead = waiting[:MOST_SIMULATED]
    holding = sorted((job for job in snapshot.jobs if job.gpu_ids), key=lambda job: job.number)
    base = replace(snapshot, jobs=(*holding, *ahead))
    # 2 simulate as many futures as the budget allows
    futures = _futures(base, policy, known, seed, budget, len(ahead), paired=paired)
    # 3 combine them; starts beyond all of them follow from the work ahead
    road = Road(base, waiting, known.history, known.trained_s)
    stuck = [future.stuck() for future in futures]
    found, each = _together(waiting, futures, stuck, road, reach)
    limited = _limited(stuck)
    unsaid |= {job.id: limited.get(job.id, "unknown") for job in waiting if job.id not in found}
    bases = Counter(known.history.basis(job, known.trained_s.get(job.id, 0.0)) for job in base.jobs)
    rounds = sum(future.planned for future in futures)
    return Forecast(snapshot.now, found, unsaid, len(futures), rounds, bases, _gangs(futures), each if paired else {})


def _queued(job: Job) -> Job:
    """Jobs on their way into the queue, or back into it, count as queued."""
    return job if job.state in QUEUED else replace(job, state=State.WAITING_FOR_RESOURCE, gang=None)


def in_order(snapshot: Snapshot, policy: Policy, jobs: Sequence[Job]) -> list[Job]:
    """By the policy's ranking if it has one; else by priority and submission."""
    if not isinstance(policy, ScoresJobs):
        return sorted(jobs, key=queue_key)
    return [jobs[place] for place in policy.scores_of(snapshot, jobs).order] if jobs else []


# Futures -------------------------------------------------------------------------------------------


def _futures(
    base: Snapshot, policy: Policy, known: Known, seed: int, budget: Budget, waiting: int, *, paired: bool
) -> list[Future]:
    """As many as the budget allows, each within its part of it."""
    found: list[Future] = []
    left, dearest = budget.milliseconds, 0.0
    while waiting and len(found) < (budget.most_futures if left > 0 else budget.least_futures):
        rng = Random(f"{seed}/{len(found)}")  # noqa: S311  # nosec B311
        future = _future(base, policy, known, rng, budget, f"{seed}/{len(found)}" if paired else None)
        future.run()
        if found and budget.stopped():
            break
        found.append(future)
        spent = future.cost + _PER_FUTURE * len(base.jobs)
        left, dearest = left - spent, max(dearest, spent)
        if len(found) >= budget.least_futures and left < dearest:
            break
    return found


def _costs(base: Snapshot, policy: Policy) -> Callable[[int], float]:
    """Milliseconds of a round with this many jobs."""
    users = sum(map(len, base.usage.values())) if Needs.FAIR_SHARE in policy.capabilities.needs else 0
    itself, each = _PLAIN
    if policy.capabilities.shares_time:
        itself, each = _SOLVED
    elif isinstance(policy, ScoresJobs):
        itself, each = _RANKED
    elif policy.capabilities.strict_order:
        itself, each = _STRICT
    return lambda jobs: itself + each * jobs + _PER_USER * users


def _future(base: Snapshot, policy: Policy, known: Known, rng: Random, budget: Budget, paired: str | None) -> Future:
    """`paired`: a job's draws depend only on this seed and the job's id."""

    def draw(job: Job) -> RunTime:
        own = rng if paired is None else Random(f"{paired}/{job.id}")  # noqa: S311  # nosec B311
        return known.history.draw(job, known.trained_s.get(job.id, 0.0), own)

    runs = {job.id: draw(job) for job in base.jobs}
    last = max((job.number for job in base.jobs), default=0)
    if paired is not None:
        last = _BEYOND
    coming = Random(f"{paired}/arrivals" if paired is not None else rng.random())  # noqa: S311  # nosec B311
    return Future(
        base=base,
        policy=policy,
        runs=runs,
        arrivals=drawn(known.arrivals, base.now, last, coming),
        draw=draw,
        cost_of=_costs(base, policy),
        budget=budget.milliseconds / budget.least_futures,
        times=known.times,
        stopped=budget.stopped,
    )


# Combining futures --------------------------------------------------------------------------------


def _together(
    waiting: Sequence[Job], futures: Sequence[Future], stuck: Sequence[Mapping[str, str]], road: Road, reach: Reach
) -> tuple[dict[str, Start], dict[str, tuple[float, ...]]]:
    found: dict[str, Start] = {}
    each: dict[str, tuple[float, ...]] = {}
    now = road.snapshot.now
    paces = [road.pace(future.starts) for future in futures]
    ended = [future.now - now for future in futures]
    for place, job in enumerate(waiting):
        reached = [future.starts.get(job.id) for future in futures]
        missing = sum(at is None for at in reached)
        simulated = place < MOST_SIMULATED
        if simulated and 2 * sum(job.id in keys for keys in stuck) > len(futures):
            continue
        least_s = reach.least_s(job)
        seconds = [
            max(least_s, at - now if at is not None else max(road.after_s(job.id, pace), end if simulated else 0.0))
            for at, pace, end in zip(reached, paces, ended, strict=True)
        ]
        p10, p50, p90 = np.quantile(seconds, (0.1, 0.5, 0.9)).tolist()
        found[job.id] = Start(p10, p50, p90, simulated and 2 * missing <= len(futures), least_s)
        each[job.id] = tuple(seconds)
    return found, each


def _gangs(futures: Sequence[Future]) -> dict[str, Gang]:
    found: dict[str, Counter[Gang]] = {}
    for future in futures:
        for key, gang in future.gangs.items():
            found.setdefault(key, Counter())[gang] += 1
    return {key: gangs.most_common(1)[0][0] for key, gangs in found.items()}


def _limited(stuck: Sequence[Mapping[str, str]]) -> dict[str, str]:
    times = Counter(key for tokens in stuck for key, token in tokens.items() if "quota" in token)
    return {key: "limit" for key, often in times.items() if 2 * often > len(stuck)}
