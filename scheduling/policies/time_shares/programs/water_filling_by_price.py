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
from scheduling.policies.time_shares.programs.column_prices import ColumnPrices, Needs, optimise_market
from scheduling.policies.time_shares.programs.groups import ByJob, Fractions
from scheduling.policies.time_shares.programs.pricing_problem import JobClass, PricingProblem
from scheduling.policies.time_shares.programs.water_filling_pairs import Bounding
from scheduling.policies.time_shares.programs.water_levels import LevelNode
from scheduling.solvers.lp import Engine, Floats

_BINDS, _SAME = 1e-9, 1e-9
#: (needs by total level, the total level of all, the level that is reached) -> Poured
RaiseTo = Callable[[Needs, float, float], "Poured"]


@dataclass(frozen=True, slots=True)
class Poured:
    """(total level, shares, the most steps/s that each unit may ever have)."""

    volume: float
    values: Floats | ByJob
    most: Floats


def fill_by_price(
    found: Fractions,
    alike: JobClass,
    vessel: LevelNode,
    per_level: Floats,
    weights: Floats,
    engine: Engine,
    time_limit_s: float,
) -> tuple[Floats, Floats | ByJob]:
    """(level by job, shares). By unit: the steps/s of one level, and the weight of one member."""
    raise_to = (_by_rows if found.paired else _by_prices)(found, alike, engine, time_limit_s)
    count, fastest = alike.count, found.fastest[found.group_of[alike.first]]
    tops, volume = fastest / per_level, 0.0
    for _ in range(len(tops) + 1):
        full = vessel.shape(tops * count, weights * count)
        needs = _needs(vessel, tops * count, per_level / count)
        reached = raise_to(needs, full, volume)
        volume = reached.volume
        level = needs(volume)[0] / per_level
        tops = np.clip(reached.most / per_level, level, tops)
        if not (tops > level * (1 + _SAME)).any():
            return level[alike.unit_of], reached.values
    raise SolverError("water filling did not end")


def _by_prices(found: Fractions, alike: JobClass, engine: Engine, time_limit_s: float) -> RaiseTo:
    choices = PricingProblem(found, alike)
    prices: Floats | None = None

    def raise_to(needs: Needs, full: float, volume: float) -> Poured:
        nonlocal prices
        market = ColumnPrices(choices, needs, full, least=volume, maximise=True)
        reached = optimise_market(market, engine, time_limit_s, prices)
        prices = reached.prices
        most = _free_of_charge(choices, prices, needs(reached.theta)[0])
        return Poured(reached.theta, ByJob(reached.shares[:, alike.unit_of]), most)

    return raise_to


def _by_rows(found: Fractions, alike: JobClass, engine: Engine, time_limit_s: float) -> RaiseTo:
    bounding, fastest = Bounding(found, alike, engine, time_limit_s), found.fastest[found.group_of[alike.first]]

    def raise_to(needs: Needs, full: float, volume: float) -> Poured:
        reached, values, bound = bounding.reach(needs, full, volume)
        wanted = needs(reached)[0]
        return Poured(reached, values, fastest if bound is None else bound.free(wanted, fastest))

    return raise_to


def _free_of_charge(choices: PricingProblem, prices: Floats, wanted: Floats) -> Floats:
    """The most steps/s of each unit that cost no more than its present ones, if the budget is spent."""
    per_gpu = prices / choices.capacity
    more = np.maximum(wanted * (1 + _SAME), _SAME * choices.fastest)
    dear = choices.cheapest(per_gpu, more).marginal * choices.fastest
    unpriced = (per_gpu <= _BINDS * per_gpu.max())[choices.order]
    most = np.where(unpriced, choices.speed[1:], 0.0).max(axis=0)
    return np.where(dear > _BINDS * dear.max(), wanted, most)


def _needs(vessel: LevelNode, tops: Floats, per_level: Floats) -> Needs:
    def needs(volume: float) -> tuple[Floats, Floats]:
        level, rise = tops.copy(), np.zeros(len(tops))
        vessel.pour(volume, 1.0, level, rise)
        return level * per_level, rise * per_level

    return needs
