"""The best theta that all jobs reach together: the highest level, or the shortest time.

With few groups by the rows of `cutting_planes`; with many, where most rows are slack, by the prices of `column_prices`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, Self

import numpy as np

from scheduling.errors import SolverError
from scheduling.policies.time_shares.programs.column_prices import ColumnPrices, optimise_by_prices
from scheduling.policies.time_shares.programs.cutting_planes import CuttingPlanes, optimise
from scheduling.policies.time_shares.programs.groups import ByJob, Fractions
from scheduling.policies.time_shares.programs.pricing_problem import MOST_TYPES, JobClass, PricingProblem
from scheduling.policies.time_shares.programs.ungrouping.ungroup import even
from scheduling.solvers.lp import INFINITY, Engine, Floats, Ints, LinearProgram

#: From this number of columns on, prices are faster than rows.
_MANY = 1_000
_ROUGH, _SAME = 1e-3, 1e-12
#: The least fraction of time a job needs at the best level, so that an engine can distinguish it from zero.
_LEAST = 1e-8


class Demand(Protocol):
    """What jobs need in steps/s, and its rate of change with theta."""

    @property
    def keys(self) -> tuple[Floats, ...]:
        """By job: what distinguishes the needs of jobs with equal throughputs."""

    def of(self, jobs: Ints) -> Self: ...

    def needs(self, theta: float) -> tuple[Floats, Floats]: ...

    def alone(self, fastest: Floats) -> float:
        """An upper bound of theta: reached with the job's fastest column all the time."""


@dataclass(frozen=True, slots=True)
class MaxMinSearch:
    """By job: `per_level` * theta steps/s reach the level theta."""

    per_level: Floats

    @property
    def keys(self) -> tuple[Floats, ...]:
        return (self.per_level,)

    def of(self, jobs: Ints) -> MaxMinSearch:
        return MaxMinSearch(self.per_level[jobs])

    def needs(self, theta: float) -> tuple[Floats, Floats]:
        return self.per_level * theta, self.per_level

    def alone(self, fastest: Floats) -> float:
        return float(np.min(fastest / self.per_level))


@dataclass(frozen=True, slots=True)
class MakespanSearch:
    """By job: `steps` / (`rate` * theta - `spent`) steps/s reach theta."""

    steps: Floats
    rate: Floats
    spent: Floats

    @property
    def keys(self) -> tuple[Floats, ...]:
        return self.steps, self.rate, self.spent

    def of(self, jobs: Ints) -> MakespanSearch:
        return MakespanSearch(self.steps[jobs], self.rate[jobs], self.spent[jobs])

    def needs(self, theta: float) -> tuple[Floats, Floats]:
        left = self.rate * theta - self.spent
        return self.steps / left, -self.steps * self.rate / left**2

    def alone(self, fastest: Floats) -> float:
        return float(np.max((self.steps / fastest + self.spent) / self.rate, initial=0.0))


def highest(found: Fractions, climb: MaxMinSearch, engine: Engine, time_limit_s: float) -> tuple[float, Floats | ByJob]:
    """(level, shares) with the highest level that all jobs reach."""
    fastest = found.fastest[found.group_of]
    alone = climb.alone(fastest)
    climb = MaxMinSearch(np.maximum(climb.per_level, _LEAST * fastest / alone))
    start, priced = _unshared(found, climb, alone, engine, time_limit_s, maximise=True)
    if priced is not None:
        return priced
    width = len(found.columns)
    costs = np.zeros(width + 1)
    costs[width] = 1.0
    program = found.program(costs, extra=1)
    if not found.paired and even(found, climb.per_level):
        _let_all_reach(found, climb.per_level, program, alone)
        solution = program.solve(engine, time_limit_s)
        return float(solution.values[width]), solution.values[:width]
    program.add_row([width], [1.0], 0.0, alone)
    level, values, _ = optimise(CuttingPlanes(found, program), climb.needs, start, engine, time_limit_s)
    return level, values


def _let_all_reach(found: Fractions, per_level: Floats, program: LinearProgram, start: float) -> None:
    """Add a row for every group whose members need the same: they get at least what the level requires. `start`, a
    level near it, scales numbers to about 1."""
    entries, scale, groups = found.entries, max(start, 1.0), len(found.gang)
    needs: Floats = np.zeros(groups)
    needs[found.group_of] = per_level
    offers = entries.steps_per_s * entries.mass / (needs * found.count * scale)[entries.group]
    ends = entries.start[1:]
    columns, values = np.insert(entries.column, ends, len(found.columns)), np.insert(offers, ends, -1.0 / scale)
    starts = entries.start + np.arange(groups + 1)
    program.add_rows(starts, columns, values, np.zeros(groups), np.full(groups, INFINITY))


def soonest(
    found: Fractions, race: MakespanSearch, engine: Engine, time_limit_s: float
) -> tuple[float, Floats | ByJob]:
    """(theta, shares) with the least theta that all jobs reach."""
    alone = race.alone(found.fastest[found.group_of])
    start, priced = _unshared(found, race, alone, engine, time_limit_s, maximise=False)
    if priced is not None:
        return priced
    width = len(found.columns)
    costs = np.zeros(width + 1)
    costs[width] = 1.0
    program = found.program(costs, extra=1, maximise=False)
    program.add_row([width], [1.0], 1.0, INFINITY)
    theta, values, _ = optimise(CuttingPlanes(found, program, alone), race.needs, start, engine, time_limit_s)
    return theta, values


def _unshared(
    found: Fractions, demand: Demand, alone: float, engine: Engine, time_limit_s: float, *, maximise: bool
) -> tuple[float, tuple[float, ByJob] | None]:
    """(a theta to start from, the best by prices); None if rows must decide, because there are few columns or some job
    gains by sharing GPUs. `alone`: the upper bound of theta."""
    if not (found.paired or len(found.columns) >= _MANY) or len(found.types) > MOST_TYPES:
        return alone, None
    job_classes, problem = _without_partners(found, demand, maximise=maximise)
    equal = np.full(problem.choices.types, 1.0 / problem.choices.types)
    start = problem.limit(equal, problem.bound, _ROUGH)[0]
    # Sharing slows jobs down, so if one job alone decides, no job needs to share.
    if found.paired and abs(start - alone) > _SAME * alone:
        return start, None
    priced = _by_prices(job_classes, problem, engine, time_limit_s)
    if priced is not None and found.paired and abs(priced[0] - alone) > _SAME * alone:
        return start, None
    return start, priced


def _without_partners(found: Fractions, demand: Demand, *, maximise: bool) -> tuple[JobClass, ColumnPrices]:
    """The program of jobs without partners."""
    job_classes = JobClass.by(found.group_of, *demand.keys)
    choices, units = PricingProblem(found, job_classes), demand.of(job_classes.first)
    return job_classes, ColumnPrices(choices, units.needs, units.alone(choices.fastest), maximise=maximise)


def _by_prices(
    job_classes: JobClass, problem: ColumnPrices, engine: Engine, time_limit_s: float
) -> tuple[float, ByJob] | None:
    """None if prices do not suffice and rows must decide."""
    try:
        reached = optimise_by_prices(problem, engine, time_limit_s)
    except SolverError:
        return None
    return reached.theta, ByJob(reached.shares[:, job_classes.unit_of])
