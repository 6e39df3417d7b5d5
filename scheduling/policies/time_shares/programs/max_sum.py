"""The allocation of the largest sum: as one program, or through dual prices of GPUs if there are many groups.

At given prices each group uses the type with the largest worth above its price, or none; gains and payments of all
groups bound the sum. Cutting planes find prices near the least bound; groups whose choice depends on which of these
prices are used stay open in a small exact program, all others are fixed. The prices of that program then show whether
the bound is met, or which further groups to open.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from scheduling.errors import SolverError
from scheduling.policies.time_shares.programs.groups import Fractions
from scheduling.solvers.lp import INFINITY, Engine, Floats, Ints, LinearProgram

#: From this number of columns on, prices are faster than one program.
_MANY = 1_000
_CUTS, _ROUNDS = 60, 20
_COARSE, _EXACT = 1e-4, 1e-11


def largest_sum(found: Fractions, worth: Floats, engine: Engine, time_limit_s: float) -> tuple[float, Floats]:
    """(sum, value of each column); `worth` is by column."""
    if not found.paired and len(found.columns) >= _MANY:
        try:
            values = Offers(found, worth).best(engine, time_limit_s)
            return float(worth @ values), values
        except SolverError:
            pass  # the whole program decides
    solution = found.program(worth).solve(engine, time_limit_s)
    return solution.objective, solution.values


class Offers:
    """[type, group]; prices are for all GPUs of a type. Worth is in units of the total worth at price zero."""

    def __init__(self, found: Fractions, worth: Floats) -> None:
        self.found, columns = found, found.columns
        self.types, groups = len(found.capacity), len(found.gang)
        self.worth = np.full((self.types, groups), -np.inf)
        self.worth[columns.kind, columns.group] = worth * found.count[columns.group]
        self.unit = max(float(self.worth.max(axis=0).clip(0.0).sum()), 1e-300)
        self.worth /= self.unit
        self.use = (found.gang * found.count)[None, :] / np.maximum(found.capacity, 1.0)[:, None]
        #: Above these prices no group uses a type.
        self.highest = np.maximum(self.worth / self.use, 0.0).max(axis=1)
        self.numbers = np.arange(groups)

    def best(self, engine: Engine, time_limit_s: float) -> Floats:
        """The value of each column."""
        seen = self._coarse(engine, time_limit_s)
        folded = self._choose(seen[0])[0]
        is_open = np.zeros(len(folded), dtype=bool)
        for prices in seen[1:]:
            is_open |= self._choose(prices)[0] != folded
        for _ in range(_ROUNDS):
            parts, prices = self._complete(folded, is_open, engine, time_limit_s)
            _, gain = self._choose(prices)
            missed = np.where(is_open, 0.0, gain - self._gain(folded, prices))
            if missed.sum() <= _EXACT:
                break
            is_open |= missed > 0.0
        else:
            raise SolverError("no convergence")
        columns = self.found.columns
        return np.asarray(parts[columns.kind, columns.group] * self.found.count[columns.group])

    def _choose(self, prices: Floats) -> tuple[Ints, Floats]:
        """By group: the type with the largest gain, -1 for none, and the gain."""
        gains = self.worth - prices[:, None] * self.use
        kind = gains.argmax(axis=0)
        gain = gains[kind, self.numbers]
        return np.where(gain > 0.0, kind, -1), np.maximum(gain, 0.0)

    def _gain(self, choice: Ints, prices: Floats) -> Floats:
        gains = self.worth - prices[:, None] * self.use
        return np.asarray(np.where(choice >= 0, gains[choice, self.numbers], 0.0))

    def _used(self, choice: Ints) -> Floats:
        taken = choice >= 0
        weights = self.use[choice[taken], self.numbers[taken]]
        return np.bincount(choice[taken], weights=weights, minlength=self.types).astype(float)

    def _coarse(self, engine: Engine, time_limit_s: float) -> list[Floats]:
        """Prices near those of the least bound, to about _COARSE; the best first."""
        every = np.arange(self.types + 1)
        master = LinearProgram(
            (every == self.types).astype(float), maximise=False, bounds=np.append(self.highest, INFINITY)
        )
        prices, tried, bounds = np.zeros(self.types), list[Floats](), list[float]()
        for _ in range(_CUTS):
            choice, gain = self._choose(prices)
            slope = 1.0 - self._used(choice)
            tried.append(prices)
            bounds.append(float(prices.sum() + gain.sum()))
            master.add_row(every, np.append(-slope, 1.0), bounds[-1] - float(slope @ prices), INFINITY)
            solution = master.solve(engine, time_limit_s)
            if min(bounds) - solution.objective <= _COARSE * min(bounds):
                break
            prices = solution.values[: self.types]
        binding = [tried[n] for n in np.nonzero(solution.duals)[0]]
        return [tried[int(np.argmin(bounds))], *binding]

    def _complete(
        self, folded: Ints, is_open: NDArray[np.bool_], engine: Engine, time_limit_s: float
    ) -> tuple[Floats, Floats]:
        """(parts[type, group], prices) that are best for the open groups. Each type may be exceeded above its highest
        price, so that there always is a solution; a group that exceeds it is opened."""
        parts = np.zeros_like(self.worth)
        fixed = np.where(is_open, -1, folded)
        parts[fixed[fixed >= 0], self.numbers[fixed >= 0]] = 1.0
        left = 1.0 - self._used(fixed)
        (groups,) = np.nonzero(is_open)
        member, kind = np.nonzero(np.isfinite(self.worth[:, groups].T))
        width, beyond = len(member), 2.0 * self.highest + 1e-9
        program = LinearProgram(np.concatenate((self.worth[kind, groups[member]], -beyond)), maximise=True)
        for n in range(self.types):
            (own,) = np.nonzero(kind == n)
            use = self.use[n, groups[member[own]]]
            program.add_row(np.append(own, width + n), np.append(use, -1.0), -INFINITY, left[n])
        start = np.searchsorted(member, np.arange(len(groups) + 1))
        for first, last in pairwise(start.tolist()):
            program.add_row(np.arange(first, last), np.ones(last - first), -INFINITY, 1.0)
        solution = program.solve(engine, time_limit_s)
        parts[kind, groups[member]] = solution.values[:width]
        return parts, np.abs(solution.duals[: self.types])
