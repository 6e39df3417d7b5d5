"""F-scheduling: elastic GPU counts under a bound on the variance of relative throughput.

Objective: the largest sum of S (or of steps/s) over the jobs that hold GPUs. Constraints: variance of S < v_bound where
that is possible, every job between its minimum and maximum on one accelerator type, capacity per type; running jobs are
never preempted. Greedy, one GPU at a time: Listing 1 of "A Methodology for Efficient Scheduling on GPU-enabled
Clusters" (thesis, Seoul National University, 2020), extended to several types.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar, Literal

from pydantic import Field

from scheduling.capacity.cluster_view import RoundView, SizeRange, present_gang, view
from scheduling.capacity.memo import cluster_index
from scheduling.capacity.quota_headroom import QuotaHeadroom
from scheduling.domain import Allocation, Gang, Job, Snapshot, plain_type
from scheduling.domain.lazy_reasons import LazyReasons
from scheduling.policies.base import Parameters as BaseParameters
from scheduling.policies.capabilities import Answer, Capabilities
from scheduling.policies.elastic.reasons import explain
from scheduling.policies.elastic.variance_greedy import LARGEST_VARIANCE, NEVER, UNITS, GangChoice, Greedy, JobKind, at

#: Most steps of the greedy for which a settings form waits.
_HINT_STEPS = 40_000


class Parameters(BaseParameters):
    v_bound: float = Field(
        default=0.05,
        ge=0.0,
        le=1.0,
        description="Largest variance of relative throughput over the jobs that hold GPUs. "
        "It cannot exceed 0.25, so a larger bound (the paper's 0.5) never binds.",
    )
    min_gain: float = Field(
        default=1.0,
        ge=0.0,
        description="A plan that starts no job is applied only if it adds at least this much throughput.",
    )
    min_gain_kind: Literal["absolute", "relative"] = Field(
        default="absolute",
        description="absolute: steps/s, as in the paper; relative: a share of the present throughput.",
    )
    objective: Literal["relative", "paper"] = Field(
        default="relative",
        description="relative: sum of relative throughput, fair to large models; paper: sum of steps/s, Listing 1 "
        "literally, which also assigns GPUs that make no job faster.",
    )
    protection_factor: float = Field(
        default=3.0,
        ge=0.0,
        description="After a launch a job is not resized for this many times the launch's duration.",
    )
    amortise: bool = Field(
        default=False,
        description="Instead of min_gain, apply a plan when the steps gained until the next expected event exceed "
        "the steps lost to restarts.",
    )


@dataclass(frozen=True, slots=True)
class Problem:
    """Input of the greedy: the jobs in the plan, their first gangs, and how free GPUs are counted."""

    jobs: tuple[Job, ...]
    kinds: tuple[JobKind, ...]
    seats: tuple[GangChoice, ...]
    free: tuple[int, ...]
    others: tuple[int, ...]  # S of the jobs that hold GPUs and are not candidates
    types: tuple[str, ...]
    headroom: tuple[int, ...]  # GPUs that each limit still allows
    left_out: tuple[Job, ...]  # minimum does not fit


@dataclass(frozen=True, slots=True)
class BoundHint:
    """From which bounds on the present mix of jobs is affected."""

    affected_up_to: float  # a v_bound at or below this changes the plan
    unbounded_variance: float  # variance of the plan without a bound
    never_binds_above: float = LARGEST_VARIANCE


class FScheduling:
    name: ClassVar[str] = "f_scheduling"
    title: ClassVar[str] = "F-scheduling"
    Parameters: ClassVar[type[BaseParameters]] = Parameters
    capabilities = Capabilities(Answer.COUNTS, elastic=True)

    def __init__(self, parameters: Any = None) -> None:
        self.parameters: Parameters = parameters if isinstance(parameters, Parameters) else Parameters()

    def allocate(self, snapshot: Snapshot) -> Allocation:
        field = view(snapshot)
        problem = pose(snapshot, field, self.parameters.objective)
        seats, variance = solve(snapshot, field, problem, self.parameters.v_bound)
        if self.parameters.objective == "relative":
            seats = [useful(problem, i, seat) for i, seat in enumerate(seats)]
        return answer(snapshot, field, problem, seats, self.parameters.v_bound, {"variance": variance})


def pose(snapshot: Snapshot, field: RoundView, objective: str) -> Problem:
    """Step 1 of Listing 1: minimums in queue order. Minimums of running jobs are reserved first."""
    free = [field.free[name] for name in field.types]
    headroom = QuotaHeadroom(field)
    counted = [key for key in field.allowance if field.limits[key].kind != "running_jobs"]
    groups = {key: index for index, key in enumerate(counted)}
    kinds, seats, left_out = dict[str, JobKind](), dict[str, GangChoice](), list[Job]()
    for job in (*field.running, *field.queued):
        kind = make_kind(field, job, objective, groups)
        seat = _first_seat(field, job, kind, free, headroom)
        if seat is None:
            left_out.append(job)
            continue
        free[seat[0]] -= seat[1]
        if job.limits:
            headroom.book(job, Gang(field.types[seat[0]], seat[1]))
        kinds[job.id], seats[job.id] = kind, seat
    jobs = tuple(job for job in field.candidates if job.id in seats)
    types = cluster_index(snapshot.nodes).every_type
    holding = [(job, gang) for job in field.pinned if (gang := present_gang(job, types)) is not None]
    return Problem(
        jobs=jobs,
        kinds=tuple(kinds[job.id] for job in jobs),
        seats=tuple(seats[job.id] for job in jobs),
        free=tuple(free),
        others=tuple(to_units(field.relative(job, gang)) for job, gang in holding),
        types=field.types,
        headroom=tuple(headroom.left[key] for key in counted),
        left_out=tuple(left_out),
    )


def to_units(value: float) -> int:
    return round(value * UNITS)


_NO_SPAN = SizeRange(1, 0, (0.0,))


def make_kind(field: RoundView, job: Job, objective: str, groups: Mapping[str, int]) -> JobKind:
    spans = field.spans(job)
    # A running job stays on its type until all other jobs have GPUs; see `solve`.
    hurdle = float("inf") if job.gpu_ids else 1.0
    mine = [key for key in job.limits if key in groups] if groups else ()
    bounds: tuple[tuple[int, ...], ...] = ()
    if mine:
        bounds = tuple(
            tuple(groups[key] for key in mine if field.limits[key].type in (None, plain_type(name)))
            for name in field.types
        )
    about = (objective, hurdle, bounds)
    kind: JobKind | None = spans.memo.get(about)
    if kind is None:
        every = tuple(spans.get(name, _NO_SPAN) for name in field.types)
        kind = spans.memo[about] = _make_kind(every, objective, hurdle, bounds)
    return kind


@lru_cache(maxsize=16384)
def _make_kind(
    every: tuple[SizeRange, ...], objective: str, hurdle: float, groups: tuple[tuple[int, ...], ...]
) -> JobKind:
    alone = max((span.at(span.high) for span in every), default=0.0)
    shares = tuple(_in_units(span.steps_per_s, alone) for span in every)
    values = tuple(_in_units(span.steps_per_s, 1.0) for span in every) if objective == "paper" else shares
    return JobKind(
        values, shares, tuple(span.low for span in every), tuple(span.high for span in every), hurdle, groups
    )


@lru_cache(maxsize=16384)
def _in_units(steps_per_s: tuple[float, ...], of: float) -> tuple[int, ...]:
    return tuple(to_units(value / of) for value in steps_per_s) if of else (0,)


def _first_seat(
    field: RoundView, job: Job, kind: JobKind, free: list[int], headroom: QuotaHeadroom
) -> GangChoice | None:
    """The minimum gang: on the present type for a running job, else on the type where its throughput is worth most."""
    if job.gang is not None and job.gang.type in field.types:
        t = field.types.index(job.gang.type)
        if kind.low[t] <= kind.high[t]:
            return (t, kind.low[t]) if kind.low[t] <= free[t] else None
    fits = [
        (t, low)
        for t, low in enumerate(kind.low)
        if low <= min(free[t], kind.high[t])
        and (job.gpu_ids or not job.limits or headroom.over(job, Gang(field.types[t], low)) is None)
    ]
    return max(fits, key=lambda seat: (at(kind.value[seat[0]], seat[1]), -seat[0]), default=None)


def solve(snapshot: Snapshot, field: RoundView, problem: Problem, bound: float) -> tuple[list[GangChoice], float]:
    """Step 2 of Listing 1; with several types, repeated with changes of type allowed."""
    greedy = Greedy(problem.kinds, problem.seats, problem.free, problem.others, bound, problem.headroom)
    seats = greedy.run()
    if len(problem.types) > 1 and field.running and any(greedy.free):
        free = greedy.free
        if _any_job_finds_faster(snapshot, problem, seats, free):
            hurdles = [_hurdle(snapshot, job, kind) for job, kind in zip(problem.jobs, problem.kinds, strict=True)]
            kinds = [
                kind if hurdle == kind.hurdle else replace(kind, hurdle=hurdle)
                for kind, hurdle in zip(problem.kinds, hurdles, strict=True)
            ]
            headroom = greedy.headroom[:-1]
            greedy = Greedy(kinds, seats, free, problem.others, bound, headroom)
            seats = greedy.run()
    return seats, greedy.variance


def _hurdle(snapshot: Snapshot, job: Job, kind: JobKind) -> float:
    """A change of type must win back the steps of its restart before the next expected event."""
    if kind.hurdle != float("inf"):
        return kind.hurdle
    seconds = horizon_s(snapshot, job)
    left = seconds - job.restart_cost_s
    return seconds / left if left > 0 else float("inf")


def _any_job_finds_faster(snapshot: Snapshot, problem: Problem, seats: list[GangChoice], free: list[int]) -> bool:
    """Whether some job that has stayed on its type would be faster on another."""
    spare = [(t, count) for t, count in enumerate(free) if count]
    for job, kind, seat in zip(problem.jobs, problem.kinds, seats, strict=True):
        if kind.hurdle != float("inf"):
            continue
        needs = kind.faster.get(seat)
        if needs is None:
            needs = kind.faster[seat] = _faster(kind, 1.0, seat)
        if not any(count >= needs[t] for t, count in spare):
            continue  # restart costs would only raise the threshold
        if _finds_faster(kind, _hurdle(snapshot, job, kind), seat, free):
            return True
    return False


def _finds_faster(kind: JobKind, hurdle: float, seat: GangChoice, free: list[int]) -> bool:
    """Whether another type has enough free GPUs to be faster; if no such job exists, nothing is left to do."""
    return hurdle != float("inf") and any(map(int.__ge__, free, _faster(kind, hurdle, seat)))


def _faster(kind: JobKind, hurdle: float, seat: GangChoice) -> tuple[int, ...]:
    """For each other type the smallest gang worth more than `hurdle` times the present one; NEVER if there is none."""
    value, needs = int(at(kind.value[seat[0]], seat[1]) * hurdle), [NEVER] * len(kind.value)
    for t, values in enumerate(kind.value):
        if t != seat[0] and (found := bisect_right(values, value)) < len(values):
            need = max(found, kind.low[t])
            needs[t] = need if need <= kind.high[t] else NEVER
    return tuple(needs)


def horizon_s(snapshot: Snapshot, job: Job) -> float:
    """How long a gang is expected to last: to the next event, at most to the job's end."""
    speed = job.curves[job.gang.type].at(job.gang.count) if job.gang and job.gang.type in job.curves else 0.0
    ends = job.remaining_steps / speed if speed > 0 and job.remaining_steps > 0 else 3600.0
    return ends if snapshot.next_event_s is None else min(ends, snapshot.next_event_s)


def useful(problem: Problem, index: int, seat: GangChoice) -> GangChoice:
    """Remove trailing GPUs that add no throughput, except those that the job holds already."""
    job, kind, (t, count) = problem.jobs[index], problem.kinds[index], seat
    held = job.gang.count if job.gang and job.gang.type == problem.types[t] else 0
    least = max(kind.low[t], min(held, count))
    while count > least and at(kind.value[t], count - 1) == at(kind.value[t], count):
        count -= 1
    return t, count


def answer(
    snapshot: Snapshot,
    field: RoundView,
    problem: Problem,
    seats: list[GangChoice],
    bound: float,
    figures: dict[str, float],
) -> Allocation:
    """The plan as an Allocation with its figures and reasons."""
    types = cluster_index(snapshot.nodes).every_type
    planned = {job.id: Gang(problem.types[t], n) for job, (t, n) in zip(problem.jobs, seats, strict=True)}
    fixed = {job.id: gang for job in field.pinned if (gang := present_gang(job, types)) is not None}
    counts = planned | fixed
    by_id = {job.id: job for job in snapshot.jobs}
    used = sum(gang.count for gang in planned.values())
    throughput = relative = 0.0
    for key, gang in counts.items():
        speed, alone = field.steps_per_s(by_id[key], gang), field.alone(by_id[key])
        throughput += speed
        relative += min(1.0, speed / alone) if alone > 0 else 0.0
    figures = {
        "v_bound": bound,
        "throughput_sum": throughput,
        "relative_sum": relative,
        "free_gpus": float(sum(field.free.values()) - used),
        **figures,
    }
    explained = explain(field, problem.jobs, planned, problem.left_out, bound, figures["variance"])
    reasons = LazyReasons(
        (*field.reasons, *explained), lambda key: explained[key] if key in explained else field.reasons[key]
    )
    return Allocation(counts=counts, reasons=reasons, figures=figures)


def bound_hint(snapshot: Snapshot, parameters: Parameters | None = None) -> BoundHint:
    """The v_bound from which on the present job mix is affected. Pure; the settings form shows it.

    A bound changes a plan only if a step of the greedy exceeds it, so the variances of all steps are tried, the largest
    first. Exceeding a bound need not change the plan, as no other candidate may be better.
    """
    field = view(snapshot)
    problem = pose(snapshot, field, (parameters or Parameters()).objective)
    free = Greedy(problem.kinds, problem.seats, problem.free, problem.others, 1.0, problem.headroom)
    plan, peak = list(free.run()), free.peak_variance
    for _ in range(max(1, min(24, _HINT_STEPS // max(1, sum(problem.free))))):
        bounded = Greedy(problem.kinds, problem.seats, problem.free, problem.others, peak, problem.headroom)
        if peak <= 0.0 or bounded.run() != plan:
            break
        peak = bounded.peak_below(peak)
    return BoundHint(affected_up_to=peak, unbounded_variance=free.variance)
