"""When those who wait will start: several futures of the present queue, and what they say together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random

import numpy as np

from scheduling.domain import Job, Snapshot
from scheduling.forecast.arrivals import Arrival, drawn
from scheduling.forecast.future import Future, Times
from scheduling.forecast.reach import Reach
from scheduling.forecast.road import Road, usable_gpus, work_gpu_s
from scheduling.forecast.run_times import Basis, History, RunTime
from scheduling.forecast.sim import keeps
from scheduling.lifecycle import QUEUED, State
from scheduling.policies._view import queue_key
from scheduling.policies.base import Policy

#: So many jobs at the head of the queue are simulated, the others' starts follow from the work ahead of them.
MOST_SIMULATED = 500
#: What one round costs, in milliseconds on the machine it was measured on: in itself, per job that it is shown, per
#: user of a fair-share tree; and how much more where a linear program is solved.
_ROUND, _PER_JOB, _PER_USER, _SOLVED = 1.0, 0.013, 0.005, 3.0
_LEAST_ROUNDS, _ENOUGH_ROUNDS = 8, 150


@dataclass(frozen=True, slots=True)
class Budget:
    """In milliseconds as they are reckoned beforehand, not as they pass: same seed, same answer.

    `stopped` is the emergency brake of those who have no time: asked before each round, what it ends is left out.
    """

    milliseconds: float = 800.0
    most_futures: int = 24
    least_futures: int = 3
    stopped: Callable[[], bool] = lambda: False


@dataclass(frozen=True, slots=True)
class Known:
    """What was recorded: how long jobs took, how long those that run have trained, and who came."""

    history: History
    trained_s: Mapping[str, float]
    arrivals: Sequence[Arrival] = ()
    times: Times = field(default_factory=Times)


@dataclass(frozen=True, slots=True)
class Start:
    """Seconds from now, as the futures have them; `simulated` False: from the work ahead of the job, behind those that
    are simulated or where most futures ended before it started."""

    p10_s: float
    p50_s: float
    p90_s: float
    simulated: bool = True
    least_s: float = 0.0  # windows bar it until then, whatever came true of earlier forecasts


@dataclass(frozen=True, slots=True)
class Forecast:
    """Of every job that waits: when it starts, or why that cannot be said."""

    now: float
    starts: Mapping[str, Start]
    unsaid: Mapping[str, str]  # held | dependency | never | no_profile | node_unavailable | limit | unknown
    futures: int
    rounds: int
    run_times: Mapping[Basis, int]  # what the run times of those that run or are simulated rest on


def foresee(snapshot: Snapshot, policy: Policy, known: Known, seed: int = 0, budget: Budget | None = None) -> Forecast:
    budget = budget or Budget()
    # 1 who waits, in the policy's order; of whom nothing can be said
    reach = Reach(snapshot)
    unsaid = {job.id: why for job in snapshot.jobs if not job.gpu_ids and (why := reach.why_not(job))}
    waiting = [_queued(job) for job in snapshot.jobs if not job.gpu_ids and job.id not in unsaid]
    waiting = in_order(snapshot, policy, waiting)
    ahead = waiting[:MOST_SIMULATED]
    holding = sorted((job for job in snapshot.jobs if job.gpu_ids), key=lambda job: job.number)
    base = replace(snapshot, jobs=(*holding, *ahead))
    # 2 simulate as many futures as there is time for
    futures = _futures(base, policy, known, seed, budget, len(ahead))
    # 3 put them together; what none of them reached follows from the work ahead
    road = Road(base, waiting, known.history, known.trained_s)
    found = _together(waiting, futures, road, reach)
    stuck = _limited(futures)
    unsaid |= {job.id: stuck.get(job.id, "unknown") for job in waiting if job.id not in found}
    bases = Counter(known.history.basis(job, known.trained_s.get(job.id, 0.0)) for job in base.jobs)
    return Forecast(snapshot.now, found, unsaid, len(futures), sum(future.planned for future in futures), bases)


def _queued(job: Job) -> Job:
    """Who is on the way into the queue, or back into it, is taken to be there."""
    return job if job.state in QUEUED else replace(job, state=State.WAITING_FOR_RESOURCE, gang=None)


def in_order(snapshot: Snapshot, policy: Policy, jobs: Sequence[Job]) -> list[Job]:
    """As the policy ranks them, where it does; else by priority and submission."""
    scores_of = getattr(policy, "scores_of", None)
    if scores_of is None:
        return sorted(jobs, key=queue_key)
    return [jobs[place] for place in scores_of(snapshot, jobs).order] if jobs else []


# Futures -------------------------------------------------------------------------------------------


def _futures(base: Snapshot, policy: Policy, known: Known, seed: int, budget: Budget, waiting: int) -> list[Future]:
    if not waiting:
        return []
    count, rounds = _divide(base, policy, budget, waiting)
    found: list[Future] = []
    for number in range(count):
        future = _future(base, policy, known, Random(f"{seed}/{number}"), rounds, budget)  # noqa: S311  # nosec B311
        future.run()
        if found and budget.stopped():
            break
        found.append(future)
    return found


def _divide(base: Snapshot, policy: Policy, budget: Budget, waiting: int) -> tuple[int, int]:
    """How many futures, and how many rounds each: enough of these first."""
    users = sum(map(len, base.usage.values())) if getattr(policy, "fair_share", False) else 0
    cost = _ROUND + _PER_JOB * len(base.jobs) + _PER_USER * users
    cost *= _SOLVED if policy.timed else 1.0
    rounds = max(1, int(budget.milliseconds / cost))
    events = min(_ENOUGH_ROUNDS, 2 * len(base.jobs) if keeps(policy, base) else 4 * len(base.jobs))
    count = max(min(budget.most_futures, rounds // events), budget.least_futures)
    return count, max(_LEAST_ROUNDS, rounds // count)


def _future(base: Snapshot, policy: Policy, known: Known, rng: Random, rounds: int, budget: Budget) -> Future:
    def draw(job: Job) -> RunTime:
        return known.history.draw(job, known.trained_s.get(job.id, 0.0), rng)

    runs = {job.id: draw(job) for job in base.jobs}
    last = max((job.number for job in base.jobs), default=0)
    return Future(
        base=base,
        policy=policy,
        runs=runs,
        arrivals=drawn(known.arrivals, base.now, last, Random(rng.random())),  # noqa: S311  # nosec B311
        draw=draw,
        rounds=rounds,
        horizon_s=max(60.0, sum(work_gpu_s(job, runs[job.id]) for job in base.jobs) / max(1, usable_gpus(base))),
        times=known.times,
        stopped=budget.stopped,
    )


# What they say together ----------------------------------------------------------------------------


def _together(waiting: Sequence[Job], futures: Sequence[Future], road: Road, reach: Reach) -> dict[str, Start]:
    found: dict[str, Start] = {}
    now = road.snapshot.now
    paces = [road.pace(future.starts) for future in futures]
    ended = [future.now - now for future in futures]
    for place, job in enumerate(waiting):
        reached = [future.starts.get(job.id) for future in futures]
        missing = sum(at is None for at in reached)
        simulated = place < MOST_SIMULATED
        if simulated and 2 * sum(job.id in future.stuck for future in futures) > len(futures):
            continue
        least_s = reach.least_s(job)
        seconds = [
            max(least_s, at - now if at is not None else max(road.after_s(job.id, pace), end if simulated else 0.0))
            for at, pace, end in zip(reached, paces, ended, strict=True)
        ]
        p10, p50, p90 = np.quantile(seconds, (0.1, 0.5, 0.9)).tolist()
        found[job.id] = Start(p10, p50, p90, simulated and 2 * missing <= len(futures), least_s)
    return found


def _limited(futures: Sequence[Future]) -> dict[str, str]:
    tokens = Counter((key, "limit") for future in futures for key, token in future.stuck.items() if "quota" in token)
    return {key: why for (key, why), times in tokens.items() if 2 * times > len(futures)}
