"""Water filling by dual prices: levels rise along their closed form up to the next bottleneck, however many jobs reach
their maximum on the way. Jobs at a bottleneck keep their level, and the rest rises further.

A job is at a bottleneck if one more step/s has a cost at prices at which the budget is spent: its level cannot rise
unless another falls (linear programming duality). Source: Gavel (OSDI 2020), section 4.3.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from scheduling.errors import SolverError
from scheduling.policies.time_shares.programs.column_prices import ColumnPrices, Needs, optimise_by_prices
from scheduling.policies.time_shares.programs.groups import ByJob, Fractions
from scheduling.policies.time_shares.programs.pricing_problem import JobClass, PricingProblem
from scheduling.policies.time_shares.programs.water_filling_pairs import Bounding
from scheduling.policies.time_shares.programs.water_levels import LevelNode
from scheduling.solvers.lp import Engine, Floats

_BINDS, _SAME = 1e-9, 1e-9
#: (needs by total level, the total level of all, the level that is reached) -> FillResult
RaiseTo = Callable[[Needs, float, float], "FillResult"]


@dataclass(frozen=True, slots=True)
class FillResult:
    """(total level, shares, the most steps/s that each unit may ever have)."""

    total_level: float
    values: Floats | ByJob
    most: Floats


def fill_by_price(
    found: Fractions,
    job_classes: JobClass,
    level_node: LevelNode,
    per_level: Floats,
    weights: Floats,
    engine: Engine,
    time_limit_s: float,
) -> tuple[Floats, Floats | ByJob]:
    """(level by job, shares). By unit: the steps/s of one level, and the weight of one member."""
    raise_to = (_by_rows if found.paired else _by_prices)(found, job_classes, engine, time_limit_s)
    count, fastest = job_classes.count, found.fastest[found.group_of[job_classes.first]]
    tops, total_level = fastest / per_level, 0.0
    for _ in range(len(tops) + 1):
        full = level_node.shape(tops * count, weights * count)
        needs = _needs(level_node, tops * count, per_level / count)
        reached = raise_to(needs, full, total_level)
        total_level = reached.total_level
        level = needs(total_level)[0] / per_level
        tops = np.clip(reached.most / per_level, level, tops)
        if not (tops > level * (1 + _SAME)).any():
            return level[job_classes.unit_of], reached.values
    raise SolverError("water filling did not end")


def _by_prices(found: Fractions, job_classes: JobClass, engine: Engine, time_limit_s: float) -> RaiseTo:
    choices = PricingProblem(found, job_classes)
    prices: Floats | None = None

    def raise_to(needs: Needs, full: float, total_level: float) -> FillResult:
        nonlocal prices
        problem = ColumnPrices(choices, needs, full, least=total_level, maximise=True)
        reached = optimise_by_prices(problem, engine, time_limit_s, prices)
        prices = reached.prices
        most = _free_of_charge(choices, prices, needs(reached.theta)[0])
        return FillResult(reached.theta, ByJob(reached.shares[:, job_classes.unit_of]), most)

    return raise_to


def _by_rows(found: Fractions, job_classes: JobClass, engine: Engine, time_limit_s: float) -> RaiseTo:
    bounding, fastest = (
        Bounding(found, job_classes, engine, time_limit_s),
        found.fastest[found.group_of[job_classes.first]],
    )

    def raise_to(needs: Needs, full: float, total_level: float) -> FillResult:
        reached, values, bound = bounding.reach(needs, full, total_level)
        wanted = needs(reached)[0]
        return FillResult(reached, values, fastest if bound is None else bound.free(wanted, fastest))

    return raise_to


def _free_of_charge(choices: PricingProblem, prices: Floats, wanted: Floats) -> Floats:
    """The most steps/s of each unit that cost no more than its present ones, if the budget is spent."""
    per_gpu = prices / choices.capacity
    more = np.maximum(wanted * (1 + _SAME), _SAME * choices.fastest)
    dear = choices.cheapest(per_gpu, more).marginal * choices.fastest
    unpriced = (per_gpu <= _BINDS * per_gpu.max())[choices.order]
    most = np.where(unpriced, choices.speed[1:], 0.0).max(axis=0)
    return np.where(dear > _BINDS * dear.max(), wanted, most)


def _needs(level_node: LevelNode, tops: Floats, per_level: Floats) -> Needs:
    def needs(total_level: float) -> tuple[Floats, Floats]:
        level, rise = tops.copy(), np.zeros(len(tops))
        level_node.set_levels(total_level, 1.0, level, rise)
        return level * per_level, rise * per_level

    return needs
