"""Water filling: raise all jobs' levels together, stop those that cannot rise further, continue with the rest.

Each step is one program: maximise d such that every job reaches level_m + rate_m * d. A job is at its bottleneck if a
row that contains its need has a positive dual value (complementary slackness). Every step has such a job, so the steps
end, at the lexicographic max-min optimum for the rates. Source: Gavel (OSDI 2020), section 4.3; its bottleneck test is
a MILP, ours uses the dual values.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from scheduling.errors import SolverError
from scheduling.policies.time_shares.programs.cutting_planes import CuttingPlanes, Needs, optimise
from scheduling.policies.time_shares.programs.groups import ByJob, Fractions
from scheduling.policies.time_shares.programs.pricing_problem import JobClass
from scheduling.policies.time_shares.programs.water_filling_by_price import fill_by_price
from scheduling.policies.time_shares.programs.water_levels import LevelNode
from scheduling.solvers.lp import Engine, Floats

Active = NDArray[np.bool_]
_BINDS = 1e-7
_MANY = 512


def raise_levels(
    found: Fractions,
    level_tree: Callable[[], tuple[JobClass, LevelNode]],
    per_level: Floats,
    weights: Floats,
    rates: Callable[[Active], Floats],
    engine: Engine,
    time_limit_s: float,
) -> tuple[Floats, Floats | ByJob]:
    """(level by job, shares): in steps for few jobs, along the closed form for many, and by the other method if that
    fails."""

    def closed() -> tuple[Floats, Floats | ByJob]:
        job_classes, level_node = level_tree()
        return fill_by_price(
            found,
            job_classes,
            level_node,
            per_level[job_classes.first],
            weights[job_classes.first],
            engine,
            time_limit_s,
        )

    def steps() -> tuple[Floats, Floats | ByJob]:
        return fill(found, per_level, rates, engine, time_limit_s)

    first, second = (closed, steps) if len(found.jobs) >= _MANY else (steps, closed)
    try:
        return first()
    except SolverError as error:
        if error.status == "kTimeLimit":
            raise
        return second()


def fill(
    found: Fractions, per_level: Floats, rates: Callable[[Active], Floats], engine: Engine, time_limit_s: float
) -> tuple[Floats, Floats]:
    """(level by job, value of each column). `per_level[j]` is the steps/s of one level of job j; `rates(active)` how
    fast the levels of the jobs that still rise grow, relative to each other."""
    costs = np.zeros(len(found.columns) + 1)
    costs[-1] = 1.0
    program = found.program(costs, extra=1)
    fixed_rows, highest = program.rows, found.fastest[found.group_of] / per_level
    active = np.ones(len(found.jobs), dtype=bool)
    level = np.zeros(len(found.jobs))
    for _ in range(len(found.jobs) + 1):
        rate = np.where(active, rates(active), 0.0)
        rising = rate > 0
        room = float(np.min((highest - level)[rising] / rate[rising]))
        tangents = CuttingPlanes(found, program, max(room, 1e-9))
        room, values, duals = optimise(tangents, _needs(per_level, level, rate), room, engine, time_limit_s)
        level = level + rate * max(room, 0.0)
        stuck = _stuck(tangents, duals, per_level * level, rising) & active
        active &= ~stuck
        if not active.any():
            return level, values
        if not stuck.any():
            raise SolverError("no bottleneck")
        program.truncate(fixed_rows)
    raise SolverError("water filling did not end")


def _needs(per_level: Floats, level: Floats, rate: Floats) -> Needs:
    return lambda step: (per_level * (level + rate * step), per_level * rate)


def _stuck(tangents: CuttingPlanes, duals: Floats, needs: Floats, rising: Active) -> Active:
    """Jobs that can rise no more: all of a group whose total is a bottleneck, else those above the level of a row."""
    found = tangents.found
    stuck = np.zeros(len(found.jobs), dtype=bool)
    prices = np.array([abs(duals[row.index]) for row in tangents.rows])
    for row, price in zip(tangents.rows, prices, strict=True):
        if price > _BINDS * prices.max():
            stuck[row.members[needs[row.members] > row.level * (1 - 1e-12)]] = True
    full = found.fastest[found.group_of]
    return stuck | (rising & (needs >= full * (1 - 1e-9)))
