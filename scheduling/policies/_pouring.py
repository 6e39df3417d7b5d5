"""Water filling by prices: levels rise along their closed form up to the next bottleneck, however many jobs reach their
own fastest on the way. What is at a bottleneck keeps its level, and the rest rises on.

A job is at one where a step/s more of it would cost something at prices at which everything is spent: then its level
cannot rise without another's falling (linear programming duality). Source: Gavel (OSDI 2020), section 4.3.
"""

from __future__ import annotations

import numpy as np

from scheduling.errors import SolverError
from scheduling.policies._choices import Alike, Choices
from scheduling.policies._fractions import ByJob, Fractions
from scheduling.policies._lp import Engine, Floats
from scheduling.policies._prices import Market, Needs, optimise_market
from scheduling.policies._vessels import Vessel

_BINDS, _SAME = 1e-9, 1e-9


def pour(
    found: Fractions,
    alike: Alike,
    vessel: Vessel,
    per_level: Floats,
    weights: Floats,
    engine: Engine,
    time_limit_s: float,
) -> tuple[Floats, ByJob]:
    """(level by job, who gets what). By unit: the steps/s of one level, and the weight of one member."""
    choices, count = Choices(found, alike), alike.count
    tops = choices.fastest / per_level
    volume, prices = 0.0, None
    for _ in range(len(tops) + 1):
        full = vessel.shape(tops * count, weights * count)
        needs = _needs(vessel, tops * count, per_level / count)
        market = Market(choices, needs, full, least=volume, maximise=True)
        reached = optimise_market(market, engine, time_limit_s, prices)
        volume, prices = reached.theta, reached.prices
        wanted = needs(volume)[0]
        level = wanted / per_level
        free = _free_of_charge(choices, prices, wanted) / per_level
        tops = np.clip(free, level, tops)
        if not (tops > level * (1 + _SAME)).any():
            return level[alike.unit_of], ByJob(reached.shares[:, alike.unit_of])
    raise SolverError("water filling did not end")


def _free_of_charge(choices: Choices, prices: Floats, wanted: Floats) -> Floats:
    """The most steps/s of each unit that cost no more than what it has, where all the money is spent."""
    per_gpu = prices / choices.capacity
    more = np.maximum(wanted * (1 + _SAME), _SAME * choices.fastest)
    dear = choices.cheapest(per_gpu, more).marginal * choices.fastest
    unpriced = (per_gpu <= _BINDS * per_gpu.max())[choices.order]
    most = np.where(unpriced, choices.speed[1:], 0.0).max(axis=0)
    return np.where(dear > _BINDS * dear.max(), wanted, most)


def _needs(vessel: Vessel, tops: Floats, per_level: Floats) -> Needs:
    def needs(volume: float) -> tuple[Floats, Floats]:
        level, rise = tops.copy(), np.zeros(len(tops))
        vessel.pour(volume, 1.0, level, rise)
        return level * per_level, rise * per_level

    return needs
