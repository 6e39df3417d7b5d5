"""Shortest remaining time first on several accelerator types: elastic, with restart costs and bounded slowdown.

Every decision maximises sum_m w_m s_m(gang)^0.6 / t_m(gang)^0.4 over one gang per job within the GPUs of each type. s_m
is the speed relative to the fastest gang, t_m the time to the end including the cost of starting there. For a job that
runs there, t_m is reduced by the cost of leaving and returning, so that no job moves for a smaller gain. A running job
also gets a bonus, so that jobs of similar worth do not take turns; the bonus is larger shortly after its start, until
its restart has paid off. Length is the best criterion for which jobs run (shortest remaining processing time minimises
mean completion time on one machine: Schrage 1968). Relative speed is the best criterion for where they run: an hour of
a fast GPU saves the same for every job. w_m is the job's weight until its slowdown (time in the system by time alone on
the fastest gang) reaches `bound`, or the usual slowdown of this cluster if that is larger. Beyond that it grows with
the fourth power of the slowdown, to prevent starvation. Remaining GPUs go to the job that gains most from one more, if
the time saved exceeds a restart. Gangs that span nodes are consolidated if that pays off
(scheduling.engine.placement.consolidation).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from heapq import heapify, heappop, heappush
from itertools import groupby
from typing import Any, ClassVar

import numpy as np
from pydantic import Field

from scheduling.capacity.cluster_view import RoundView, SizeRange, pinned_gangs, view
from scheduling.capacity.free_capacity import no_type
from scheduling.capacity.quota_headroom import QuotaHeadroom
from scheduling.domain import Allocation, Gang, Job, Reason, Snapshot
from scheduling.domain.reason_codes import ReasonCode
from scheduling.domain.wording import words
from scheduling.policies.base import Parameters as BaseParameters
from scheduling.policies.capabilities import Answer, Capabilities
from scheduling.policies.elastic.gang_assignment import Option, ranked
from scheduling.solvers.budget import time_budget_s
from scheduling.solvers.lp import Engine

#: A gang beyond the minimum is assigned completely if at least this share of it is assigned.
_SOME = 0.5
#: The least remaining time of a job, which keeps its weight finite.
_LEAST_S = 1.0
#: 1: only the remaining time of a job counts; 0: only its relative speed on a gang.
_BY_LENGTH = 0.4
#: Exponent by which the weight grows with a job's slowdown beyond the bound.
_STEEPNESS = 4.0
#: Factor on the worth of a running job where it is, so that jobs of similar worth do not take turns. It is larger for a
#: job that can grow: it would restart small and pay a second restart to grow.
_STAYING, _STAYING_ELASTIC = 1.05, 1.25
#: For a job that cannot grow, the share of the time since its restart that the restart may cost. Without it rising
#: weights of waiting jobs would make jobs change places forever.
_AMORTISED = 10.0
#: The bound is at least this multiple of the geometric mean of slowdowns: if all jobs wait long, the longest wait
#: counts.
_TYPICAL = 1.75
#: A slowdown is evaluated again once it may have changed by this fraction.
_CHANGE = 0.01


class Parameters(BaseParameters):
    bound: float = Field(
        default=1.5, ge=1.0, le=1_000.0, description="Slowdown from which on a job weighs more than its length says."
    )
    review_seconds: float = Field(
        default=360.0, gt=0, le=86_400, description="While jobs wait, their slowdown is looked at this often at most."
    )
    solver: Engine = Field(default="highs", description="Linear programming engine.")
    solver_time_limit_s: float = Field(default=30.0, gt=0, le=600, description="If it is exceeded, no job is moved.")


class ShortestRemainingTime:
    name: ClassVar[str] = "shortest_remaining_time"
    title: ClassVar[str] = "Shortest remaining time, slowdown bounded"
    Parameters: ClassVar[type[BaseParameters]] = Parameters
    # not elastic: it accounts for restarts itself
    capabilities = Capabilities(Answer.COUNTS, preempts=True, consolidates=True)

    def __init__(self, parameters: Any = None) -> None:
        self.parameters: Parameters = parameters if isinstance(parameters, Parameters) else Parameters()

    def allocate(self, snapshot: Snapshot) -> Allocation:
        field = view(snapshot)
        assignment = _GangAssignment(field, self._weights(field, snapshot.now), snapshot.now)
        limits = self.parameters.solver, time_budget_s(snapshot, self.parameters.solver_time_limit_s)
        for _, level in groupby(field.candidates, key=lambda job: job.priority):
            assignment.choose(list(level), limits)
        assignment.grow()
        waiting = [job for job in field.candidates if job.id not in assignment.counts]
        return Allocation(
            counts=assignment.counts | pinned_gangs(snapshot, field),
            reasons={**field.reasons, **assignment.reasons()},
            figures={"free_gpus": float(sum(assignment.free.values()))},
            next_wake_at=self._review_at(field, waiting, snapshot.now) if waiting else None,
        )

    def _review_at(self, field: RoundView, waiting: Sequence[Job], now: float) -> float:
        soonest_s = min(now - job.submitted_at + _left_s(field, job) for job in waiting)
        return now + max(self.parameters.review_seconds, _CHANGE * soonest_s)

    def _weights(self, field: RoundView, now: float) -> dict[str, float]:
        slowdowns = {job.id: _slowdown(field, job, now) for job in field.candidates}
        typical = float(np.exp(np.mean(np.log([*slowdowns.values(), 1.0]))))
        bound = max(self.parameters.bound, _TYPICAL * typical)
        return {job.id: job.weight * max(1.0, slowdowns[job.id] / bound) ** _STEEPNESS for job in field.candidates}


def _slowdown(field: RoundView, job: Job, now: float) -> float:
    """The slowdown if the job ran on its fastest gang from now on."""
    alone, steps = field.alone(job), job.done_steps + job.remaining_steps
    if alone <= 0.0 or steps <= 0.0:
        return 1.0
    return max(1.0, float((now - job.submitted_at + _left_s(field, job)) / (steps / alone)))


def _left_s(field: RoundView, job: Job) -> float:
    """Remaining time on its fastest gang; 0 if there is none."""
    alone = field.alone(job)
    return job.remaining_steps / alone if alone > 0.0 else 0.0


class _GangAssignment:
    """The gangs assigned so far, within GPUs and limits."""

    def __init__(self, field: RoundView, weights: Mapping[str, float], now: float) -> None:
        self.field, self.weights, self.now = field, weights, now
        self.free, self.headroom = dict(field.free), QuotaHeadroom(field)
        self.counts: dict[str, Gang] = {}
        self._jobs = {job.id: job for job in field.candidates}

    # Which jobs run, and on which type -----------------------------------------------------------

    def choose(self, jobs: Sequence[Job], limits: tuple[Engine, float]) -> None:
        """The gangs with the largest total worth in the free capacity: minimums, and larger ones once all jobs have
        theirs."""
        free = dict(self.free)
        options = [
            Option(job, Gang(kind, span.low), self._worth(job, kind, span, span.low))
            for job in jobs
            for kind, span in self.field.spans(job).items()
            if span.low <= free[kind]
        ]
        for option, _ in ranked(options, self.free, *limits):
            if option.job.id not in self.counts and self._fits(option.job, option.gang):
                self._give(option.job, option.gang)
        larger = [option for job in jobs if job.id in self.counts for option in self._larger(job, free)]
        if larger and all(job.id in self.counts for job in jobs):
            self._exchange(ranked(options + larger, free, *limits, all_run=True))

    def _exchange(self, ranked: Sequence[tuple[Option, float]]) -> None:
        """Replace the minimums by the gangs of the program. Twice, since some jobs wait for GPUs that others
        release."""
        wished = [option for option, share in ranked if share >= _SOME]
        for option in (*wished, *wished):
            before = self.counts[option.job.id]
            self._give_back(option.job, None)
            self._give(option.job, option.gang if self._fits(option.job, option.gang) else before)

    def _larger(self, job: Job, free: Mapping[str, int]) -> list[Option]:
        """Gangs beyond the minimum: the present one, and a sequence in which each is about half larger than the
        previous."""
        options = []
        for kind, span in self.field.spans(job).items():
            most = min(span.high, len(span.steps_per_s) - 1, free[kind])
            held = job.gang.count if job.gang is not None and job.gang.type == kind else 0
            count, counts = span.low, {held}
            while count < most:
                count = min(most, count + max(1, count // 2))
                counts.add(count)
            # the least count with the same throughput
            least = {
                next(n for n in range(span.low, count + 1) if span.at(n) == span.at(count))
                for count in counts
                if span.low < count <= most
            }
            options += [Option(job, Gang(kind, n), self._worth(job, kind, span, n)) for n in least if n > span.low]
        return options

    def _worth(self, job: Job, kind: str, span: SizeRange, count: int) -> float:
        staying = 1.0
        if job.gang is None:
            extra_s = job.launch_s
        elif job.gang.type == kind and count in (job.gang.count, span.low):  # from the minimum it may grow again
            extra_s, staying = -job.restart_cost_s, self._staying(job, span)
        else:
            extra_s = job.restart_cost_s
        here_s = max(job.remaining_steps / span.at(count), _LEAST_S)
        best_s = max(job.remaining_steps / self.field.alone(job), _LEAST_S)
        relative_speed = best_s / here_s
        urgency = 1.0 / max(here_s + extra_s, _LEAST_S)
        return float(self.weights[job.id] * staying * relative_speed ** (1.0 - _BY_LENGTH) * urgency**_BY_LENGTH)

    def _staying(self, job: Job, span: SizeRange) -> float:
        if span.high > span.low:
            return _STAYING_ELASTIC
        held_s = math.inf if job.held_since is None else max(self.now - job.held_since, 1.0)
        return _STAYING + _AMORTISED * job.restart_cost_s / held_s

    # How many GPUs each job has -----------------------------------------------------------------

    def grow(self) -> None:
        """Restore the present sizes of running jobs first, by worth; then add one GPU at a time where it pays most."""
        held = [job for job in self.field.running if self._may_keep(job)]
        for job in sorted(held, key=lambda job: (-self._slope(job, job.gang.count if job.gang else 0), job.id)):
            assert job.gang is not None
            extra = min(job.gang.count - self.counts[job.id].count, self.free[job.gang.type])
            self._raise(job, self.counts[job.id].count + extra)
        settled: set[str] = set()
        while True:
            before = dict(self.counts)
            self._grow_all(settled)
            given_up = [job for job in self._moved(before) if not self._pays(job)]
            if not given_up:
                return
            for job in given_up:
                assert job.gang is not None
                settled.add(job.id)
                self._give_back(job, job.gang)

    def _may_keep(self, job: Job) -> bool:
        gang = self.counts.get(job.id)
        return gang is not None and job.gang is not None and job.gang.type == gang.type and job.gang.count > gang.count

    def _grow_all(self, settled: set[str]) -> None:
        heap = [step for key in self.counts if key not in settled and (step := self._next(self._jobs[key]))]
        heapify(heap)
        while heap:
            _, key, count = heappop(heap)
            job = self._jobs[key]
            if self._raise(job, count) and (step := self._next(job)):
                heappush(heap, step)

    def _next(self, job: Job) -> tuple[float, str, int] | None:
        """The next count at which the job is faster, with the negated worth of each added GPU."""
        gang = self.counts[job.id]
        span = self.field.spans(job)[gang.type]
        now = span.at(gang.count)
        most = min(span.high, len(span.steps_per_s) - 1, gang.count + self.free[gang.type])
        faster = next((n for n in range(gang.count + 1, most + 1) if span.at(n) > now), None)
        return (-self._slope(job, faster), job.id, faster) if faster is not None else None

    def _slope(self, job: Job, count: int) -> float:
        gang = self.counts[job.id]
        span = self.field.spans(job)[gang.type]
        gain = span.at(count) - span.at(gang.count)
        return self.weights[job.id] * gain / max(job.remaining_steps, 1.0) / max(count - gang.count, 1)

    def _moved(self, before: Mapping[str, Gang]) -> list[Job]:
        """Running jobs that grew beyond their present gang."""
        grown = (job for job in self.field.running if self.counts.get(job.id) != before.get(job.id))
        return [job for job in grown if job.gang is not None and job.gang.type == self.counts[job.id].type]

    def _pays(self, job: Job) -> bool:
        """Whether the time that the job saves by growing exceeds its restart."""
        assert job.gang is not None
        span = self.field.spans(job)[job.gang.type]
        gang = self.counts[job.id]
        if gang.count <= job.gang.count:
            return True
        saved = job.remaining_steps / span.at(job.gang.count) - job.remaining_steps / span.at(gang.count)
        return saved > job.restart_cost_s

    # GPUs and limits --------------------------------------------------------------------------------

    def _fits(self, job: Job, gang: Gang) -> bool:
        return gang.count <= self.free[gang.type] and self.headroom.over(job, gang) is None

    def _give(self, job: Job, gang: Gang) -> None:
        self.counts[job.id] = gang
        self.free[gang.type] -= gang.count
        self.headroom.book(job, gang)

    def _give_back(self, job: Job, gang: Gang | None) -> None:
        """Shrink to `gang`; None: take all GPUs."""
        now = self.counts.pop(job.id)
        self.free[now.type] += now.count
        self.headroom.book(job, now, sign=-1)
        if gang is not None:
            self._give(job, gang)

    def _raise(self, job: Job, count: int) -> bool:
        now = self.counts[job.id]
        if count <= now.count or count - now.count > self.free[now.type]:
            return False
        self._give_back(job, None)
        fits = self._fits(job, Gang(now.type, count))
        self._give(job, Gang(now.type, count) if fits else now)
        return fits

    # Reasons ----------------------------------------------------------------------------------------

    def reasons(self) -> dict[str, Reason]:
        return {job.id: self._reason(job) for job in self.field.candidates}

    def _reason(self, job: Job) -> Reason:
        gang = self.counts.get(job.id)
        if gang is not None:
            text = f"Of the jobs here it is among those that end soonest for what they hold, so it has {words(gang)}."
            return Reason(ReasonCode.ENDS_SOON, text, {"weight": self.weights[job.id]})
        spans = self.field.spans(job)
        if not spans:
            return no_type(job)
        over = self.headroom.reason(job, [Gang(kind, span.low) for kind, span in spans.items()])
        if over is not None:
            return over
        text = (
            "Jobs that end sooner for the GPUs they hold, or have been slowed down more, are ahead; "
            "it counts more the longer it waits for its length."
        )
        return Reason(ReasonCode.OTHERS_END_SOONER, text, {"weight": self.weights[job.id]})
