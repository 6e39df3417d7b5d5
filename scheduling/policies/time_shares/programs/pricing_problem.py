"""The cheapest ways to serve jobs' needs when GPUs of each type have a price.

A job that needs n steps/s mixes at most two of {idle, its types}: one at most as fast as n and one at least as fast.
With the types sorted by speed that is a handful of pairs for each job, tried for all jobs at once.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scheduling.errors import SolverError
from scheduling.policies.time_shares.programs.groups import Fractions
from scheduling.solvers.lp import Floats, Ints

#: Every pair of types is tried for every unit: with more types the rows of a program are faster.
MOST_TYPES = 48
#: A need may exceed the fastest type by this fraction: rounding.
_SLACK = 1e-12


@dataclass(frozen=True, slots=True)
class Choice:
    """By unit: fraction of the time on type `high`, an index in order of speed, the rest on `low` (0 is idle).

    `marginal` is the cost of one more step/s.
    """

    cost: Floats
    marginal: Floats
    low: NDArray[np.int8]
    high: NDArray[np.int8]


@dataclass(frozen=True, slots=True)
class JobClass:
    """Interchangeable jobs form one unit: one job of each unit, each job's unit, and their number."""

    first: Ints
    unit_of: Ints
    count: Ints

    @classmethod
    def by(cls, *keys: Floats | Ints) -> JobClass:
        number = np.zeros(len(keys[0]), dtype=np.int64)
        for key in keys:
            values, place = np.unique(key, return_inverse=True)
            number = np.unique(number * len(values) + place, return_inverse=True)[1]
        _, first, unit_of, count = np.unique(number, return_index=True, return_inverse=True, return_counts=True)
        return cls(first, unit_of, count)


class PricingProblem:
    """Units of jobs without partners, on types with a price for a GPU. Figures of a unit are sums over it, but needs
    and shares are those of each member."""

    def __init__(self, found: Fractions, job_classes: JobClass) -> None:
        if len(found.types) > MOST_TYPES:
            raise SolverError("too many types for prices")
        group = found.group_of[job_classes.first]
        speeds = found.throughput[group]
        self.order: Ints = np.argsort(speeds, axis=1, kind="stable").T.copy()
        ordered = np.take_along_axis(speeds.T, self.order, axis=0)
        #: By index and unit; index 0 is idle. Types on which a job cannot run come right after it.
        self.speed: Floats = np.concatenate((np.zeros((1, len(speeds))), ordered))
        self.gang: Floats = (found.gang[group] * job_classes.count).astype(float)
        self.types, self.numbers = len(found.capacity), np.arange(len(speeds))
        self.capacity: Floats = np.maximum(found.capacity, 1.0)  # without GPUs of a type no job can run on it
        self.fastest: Floats = self.speed[-1]
        low, high = np.array([(a, b) for b in range(1, self.types + 1) for a in range(b)], dtype=np.int8).T
        apart = self.speed[high] - self.speed[low]
        able = (apart > 1e-12 * self.speed[high]) & ((self.speed[low] > 0) | (low == 0)[:, None])
        used = able.any(axis=1)
        self._low, self._high, self._able = low[used], high[used], able[used]
        self._by_speed: Floats = 1.0 / np.where(self._able, apart[used], 1.0)
        self._needs = self._beyond = self._unfit = np.empty(0)

    def cheapest(self, prices: Floats, needs: Floats) -> Choice:
        """`prices` by type, of one GPU; `needs` in steps/s by unit, none above its fastest type."""
        if needs is not self._needs:
            self._needs = needs
            wanted, low, high = np.minimum(needs, self.fastest), self.speed[self._low], self.speed[self._high]
            fits = self._able & (low <= wanted) & (wanted <= high)
            self._beyond, self._unfit = np.where(fits, wanted - low, 0.0), np.where(fits, 0.0, np.inf)
        cost = np.zeros((self.types + 1, len(needs)))
        cost[1:] = prices[self.order] * self.gang
        start = cost[self._low]
        rise = (cost[self._high] - start) * self._by_speed
        value = start + rise * self._beyond + self._unfit
        best = value.argmin(axis=0), self.numbers
        return Choice(value[best], rise[best], self._low[best[0]], self._high[best[0]])

    def cost_of(self, choice: Choice, prices: Floats, needs: Floats) -> Floats:
        """Cost of an earlier choice at other prices; infinite if it does not reach the need."""
        part = self._part(choice, needs)
        low, high = self._price(choice.low, prices), self._price(choice.high, prices)
        within = (part >= -_SLACK) & (part <= 1 + _SLACK)
        return np.asarray(np.where(within, low + part * (high - low), np.inf))

    def shares(self, choice: Choice, needs: Floats) -> Floats:
        """[type, unit]: fractions of time."""
        part = np.clip(self._part(choice, needs), 0.0, 1.0)
        by_place = np.zeros((self.types + 1, len(needs)))
        by_place[choice.high, self.numbers] = part
        by_place[choice.low, self.numbers] += 1.0 - part
        result = np.empty((self.types, len(needs)))
        np.put_along_axis(result, self.order, by_place[1:], axis=0)
        return result

    def usage(self, choice: Choice, needs: Floats) -> Floats:
        """GPUs by type."""
        part = np.clip(self._part(choice, needs), 0.0, 1.0) * self.gang
        used = np.zeros(self.types)
        for places, gpus in ((choice.high, part), (choice.low, self.gang - part)):
            busy = places > 0
            kind = self.order[np.maximum(places, 1) - 1, self.numbers]
            used += np.bincount(kind[busy], weights=gpus[busy], minlength=self.types)
        return used

    def _part(self, choice: Choice, needs: Floats) -> Floats:
        low, high = self.speed[choice.low, self.numbers], self.speed[choice.high, self.numbers]
        return np.asarray((np.minimum(needs, self.fastest) - low) / np.maximum(high - low, 1e-300))

    def _price(self, places: NDArray[np.int8], prices: Floats) -> Floats:
        kind = self.order[np.maximum(places, 1) - 1, self.numbers]
        return np.asarray(np.where(places > 0, prices[kind], 0.0) * self.gang)
