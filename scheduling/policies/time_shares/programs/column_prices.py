"""Max-min programs solved through dual prices of GPUs, for many distinct jobs.

The programs of `cutting_planes` have a row for each job, but only one for each accelerator type connects them. A few
prices therefore describe the optimum: at them nearly every job has a unique cheapest way to meet its need, and a small
exact program assigns the few that have several. For any prices p (of all GPUs together: 1), theta is infeasible if the
sum over jobs of the least cost of need_m(theta) exceeds 1, so every p bounds theta, by a one-dimensional search:

1. cutting planes for the prices of the tightest bound, coarsely;
2. at that bound, jobs whose cheapest way depends on which of the last prices is used stay open, all others are fixed
   to their use of each type. The program with the least overload of the types yields new prices, and so a new bound;
   jobs for which another way is cheaper at these prices are opened. If no type is overloaded, theta is reached and
   proven.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scheduling.errors import SolverError
from scheduling.policies.time_shares.programs.pricing_problem import Choice, PricingProblem
from scheduling.solvers.lp import INFINITY, Engine, Floats, LinearProgram

#: theta -> (what each job needs in steps/s, how fast that changes with theta)
Needs = Callable[[float], tuple[Floats, Floats]]
_CUTS, _ROUNDS, _SEARCH = 40, 30, 60
_COARSE, _EXACT = 1e-4, 1e-9


@dataclass(frozen=True, slots=True)
class Reached:
    """`shares[type, unit]`; at `prices` the budget is spent exactly at theta, unless theta is a bound of the
    program."""

    theta: float
    shares: Floats
    prices: Floats


class ColumnPrices:
    """Prices are those of all GPUs of a type; they sum to 1. `bound` is an upper bound of theta."""

    def __init__(
        self, choices: PricingProblem, needs: Needs, bound: float, *, least: float = 0.0, maximise: bool
    ) -> None:
        self.choices, self._needs = choices, needs
        self._at: tuple[float, tuple[Floats, Floats]] | None = None
        self.bound, self.least, self.maximise = bound, least, maximise

    def needs(self, theta: float) -> tuple[Floats, Floats]:
        if self._at is None or self._at[0] != theta:
            self._at = theta, self._needs(theta)
        return self._at[1]

    def choose(self, prices: Floats, theta: float) -> Choice:
        return self.choices.cheapest(prices / self.choices.capacity, self.needs(theta)[0])

    def load(self, prices: Floats, theta: float) -> Floats:
        """By type: the fraction of its GPUs by which the cheapest ways to the needs at theta exceed it."""
        wanted = self.needs(theta)[0]
        choice = self.choices.cheapest(prices / self.choices.capacity, wanted)
        return self.choices.usage(choice, wanted) / self.choices.capacity - 1.0

    def excess(self, prices: Floats, theta: float) -> tuple[float, float, Choice]:
        """How much the needs at theta cost beyond the budget, the slope in theta, and the cheapest ways."""
        wanted, slope = self.needs(theta)
        choice = self.choices.cheapest(prices / self.choices.capacity, wanted)
        return float(choice.cost.sum()) - 1.0, float(choice.marginal @ slope), choice

    def limit(self, prices: Floats, start: float, precision: float) -> tuple[float, float, Choice]:
        """(the best theta that the prices allow, the slope there, the cheapest ways there)."""
        over, slope, choice = self.excess(prices, self.bound)
        if over <= precision:
            return self.bound, slope, choice
        good, bad = (self.least if self.maximise else np.inf), self.bound
        theta = start
        for _ in range(_SEARCH):
            if not min(good, bad) < theta < max(good, bad):
                theta = (good + bad) / 2 if np.isfinite(good) else 2.0 * bad
            over, slope, choice = self.excess(prices, theta)
            if abs(over) <= precision or abs(good - bad) <= 1e-15 * abs(bad):
                break
            good, bad = (theta, bad) if over < 0 else (good, theta)
            theta = theta - over / slope if slope else np.nan
        return theta, slope, choice


def optimise_by_prices(
    problem: ColumnPrices, engine: Engine, time_limit_s: float, prices: Floats | None = None
) -> Reached:
    """The best theta and the shares there. Raises SolverError if the iterations do not suffice."""
    theta, seen = _coarse(problem, engine, time_limit_s, prices)
    tightest = seen[0]
    theta, _, folded = problem.limit(tightest, theta, _EXACT / 10)
    is_open = np.zeros(len(folded.cost), dtype=bool)
    for other in seen[1:] if problem.load(tightest, theta).max() > 0.0 else ():
        choice = problem.choose(other, theta)
        is_open |= (choice.low != folded.low) | (choice.high != folded.high)
    for _ in range(_ROUNDS):
        over, found, shares = _assign_open_jobs(problem, folded, is_open, problem.needs(theta)[0], engine, time_limit_s)
        if over <= _EXACT:
            return Reached(theta, shares, tightest)
        tightest = found
        theta, _, choice = problem.limit(tightest, theta, _EXACT / 10)
        per_gpu = tightest / problem.choices.capacity
        dearer = problem.choices.cost_of(folded, per_gpu, problem.needs(theta)[0]) - choice.cost
        is_open |= dearer > 1e-12 * (choice.cost + 1.0 / len(dearer))
    raise SolverError("no convergence")


def _coarse(
    problem: ColumnPrices, engine: Engine, time_limit_s: float, start: Floats | None
) -> tuple[float, list[Floats]]:
    """A bound of theta, and prices near those that tighten it most, to about _COARSE; the best first."""
    kinds = len(problem.choices.capacity)
    prices, theta = (np.full(kinds, 1.0 / kinds) if start is None else start), problem.bound
    tried, binding, master = [], [], _master(kinds)  # type: list[Floats], list[Floats], LinearProgram
    for _ in range(_CUTS):
        if problem.excess(prices, theta)[0] > _COARSE:
            theta = problem.limit(prices, theta, _COARSE / 10)[0]
            master.truncate(1)
            tried = []
            for other in binding:
                _cut(master, problem.load(other, theta))
                tried.append(other)
        load = problem.load(prices, theta)
        _cut(master, load)
        tried.append(prices)
        solution = master.solve(engine, time_limit_s)
        binding = [tried[n] for n in np.nonzero(solution.duals[1:])[0]]
        if load.max() <= 0.0 or solution.objective - load @ prices <= _COARSE:
            break
        prices = solution.values[:kinds] / solution.values[:kinds].sum()
    return theta, [prices, *binding]


def _cut(master: LinearProgram, load: Floats) -> None:
    master.add_row(np.arange(len(load) + 2), np.append(-load, (1.0, -1.0)), -INFINITY, 0.0)


def _master(kinds: int) -> LinearProgram:
    """maximise s over prices that sum to 1; rows say s <= load of the types * prices."""
    program = LinearProgram(np.append(np.zeros(kinds), (1.0, -1.0)), maximise=True)
    program.add_row(np.arange(kinds), np.ones(kinds), 1.0, 1.0)
    return program


def _assign_open_jobs(
    problem: ColumnPrices,
    folded: Choice,
    is_open: NDArray[np.bool_],
    wanted: Floats,
    engine: Engine,
    time_limit_s: float,
) -> tuple[float, Floats, Floats]:
    """(overload of the types, prices, shares[type, job]) with the least overload over the open jobs."""
    choices, capacity, kinds = problem.choices, problem.choices.capacity, len(problem.choices.capacity)
    shares = choices.shares(folded, wanted)
    shares[:, is_open] = 0.0
    used = (shares * choices.gang).sum(axis=1) / capacity
    (heads,) = np.nonzero(is_open)
    gangs = choices.gang[heads]
    unit, place = np.nonzero(choices.speed[1:, heads].T > 0)
    kind, width = choices.order[place, heads[unit]], len(unit)
    program = LinearProgram((np.arange(width + 1) == width).astype(float), maximise=False)
    for n in range(kinds):
        (own,) = np.nonzero(kind == n)
        program.add_row(np.append(own, width), np.append(gangs[unit[own]] / capacity[n], -1.0), -INFINITY, -used[n])
    speeds = choices.speed[place + 1, heads[unit]] / np.maximum(wanted[heads[unit]], 1e-300)
    start = np.searchsorted(unit, np.arange(len(heads) + 1))
    for n, head in enumerate(heads):
        own = np.arange(start[n], start[n + 1])
        program.add_row(own, np.ones(len(own)), -INFINITY, 1.0)
        if wanted[head] > 0:
            program.add_row(own, speeds[own], min(1.0, choices.fastest[head] / wanted[head]), INFINITY)
    solution = program.solve(engine, time_limit_s)
    shares[kind, heads[unit]] = solution.values[:width]
    prices = np.abs(solution.duals[:kinds])
    return solution.objective - 1.0, prices / max(float(prices.sum()), 1e-300), shares
