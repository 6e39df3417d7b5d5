"""Water filling if jobs share GPUs: how high the levels can rise, by the rows of `cutting_planes`.

At given needs the largest fraction of them that can be met at once is a linear program. Its dual values are a bound
that holds at all levels: the weighted needs never exceed the weighted capacity. The total level is lowered to what the
bound allows, until all needs can be met.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from scheduling.errors import SolverError
from scheduling.policies.time_shares.programs.cutting_planes import CuttingPlanes, Needs, flat
from scheduling.policies.time_shares.programs.groups import Fractions
from scheduling.policies.time_shares.programs.pricing_problem import JobClass
from scheduling.solvers.lp import INFINITY, Engine, Floats, Ints

_ROUNDS, _STEPS = 200, 100
_MET, _BINDS, _SAME = 1e-9, 1e-9, 1e-12


@dataclass(frozen=True, slots=True)
class Bound:
    """sum(weight * max(need - level, 0)) <= most, over entries that each name a unit."""

    unit: Ints
    weight: Floats
    level: Floats
    most: float

    def excess(self, needs: Floats, slope: Floats) -> tuple[float, float]:
        """How much needs exceed the bound, and how fast that grows when they grow by `slope`."""
        above = np.maximum(needs[self.unit] - self.level, 0.0)
        return float(self.weight @ above) - self.most, float((self.weight * (above > 0)) @ slope[self.unit])

    def free(self, needs: Floats, fastest: Floats) -> Floats:
        """The most that each unit may need if the bound is tight."""
        free = fastest.copy()
        np.minimum.at(free, self.unit, np.maximum(self.level, needs[self.unit] * (self.level < needs[self.unit])))
        return np.maximum(free, needs)


class Bounding:
    """The program of one problem, kept between levels."""

    def __init__(self, found: Fractions, job_classes: JobClass, engine: Engine, time_limit_s: float) -> None:
        self.found, self.job_classes, self.limits = found, job_classes, (engine, time_limit_s)
        width = len(found.columns)
        self.program = found.program((np.arange(width + 1) == width).astype(float), extra=1)
        self.program.options = {"presolve": "off"}  # it is solved repeatedly from its last basis
        self.program.add_row([width], [1.0], -INFINITY, 1.0)
        self.fixed = self.program.rows
        self.tangents = CuttingPlanes(found, self.program)

    def reach(self, needs: Needs, most: float, least: float) -> tuple[float, Floats, Bound | None]:
        """(total level, value of each column, the bound that limits it): at most `most`; `least` is feasible."""
        tangents, width, bound = self.tangents, len(self.found.columns), None
        total_level, part, values = most, 1.0, np.zeros(width)
        for _ in range(_ROUNDS):
            demand = _parts_of(needs(total_level)[0][self.job_classes.unit_of])
            tangents.renew(demand, 1.0)
            # A bound is valid even if rows are missing, so all rows are only searched when it seems to be met.
            met = part >= 1.0 - _MET or total_level <= least
            more = tangents.add(demand, part, values) or (met and tangents.add_cuts(demand, part, values))
            if met and not more:
                return total_level, values, bound
            solution = self.program.solve(*self.limits)
            values, part = solution.values[:width], float(solution.values[width])
            if part < 1.0 - _MET and total_level > least:
                bound = self._bound(solution.duals)
                total_level = _fall(bound, needs, total_level, least)
        raise SolverError("no convergence")

    def _bound(self, duals: Floats) -> Bound:
        price = np.abs(duals)
        most = float(price[: self.fixed - 1].sum())  # a type without GPUs has no columns in use
        least = _BINDS * float(price[self.fixed :].max(initial=0.0))
        rows = [row for row in self.tangents.rows if price[row.index] > least]
        worth = np.array([price[row.index] / row.scale for row in rows])
        most += sum(row.constant * value for row, value in zip(rows, worth.tolist(), strict=True))
        number, members, weight, level = flat(rows)
        # Members of a unit need the same.
        _, first, place = np.unique(
            number * len(self.job_classes.first) + self.job_classes.unit_of[members],
            return_index=True,
            return_inverse=True,
        )
        total = np.bincount(place, weights=weight * worth[number]).astype(float)
        return Bound(self.job_classes.unit_of[members[first]], total, level[first], most)


def _parts_of(wanted: Floats) -> Needs:
    return lambda part: (wanted * part, wanted)


def _fall(bound: Bound, needs: Needs, high: float, low: float) -> float:
    """The largest total level that the bound allows, by Newton's method between `low` and `high`."""
    total_level = high
    for _ in range(_STEPS):
        over, slope = bound.excess(*needs(total_level))
        if abs(over) <= _SAME * bound.most or high - low <= _SAME * high:
            return total_level
        low, high = (total_level, high) if over < 0.0 else (low, total_level)
        total_level = total_level - over / slope if slope > 0.0 else low
        if not low < total_level < high:
            total_level = (low + high) / 2
    return high
