"""Exact constraints for what the members of a group need, without a variable per job.

Let member m need n_m(theta) steps/s, convex in theta. Columns of the group can be split among its members so that each
gets at most one second per second and at least its need if and only if, for every level l,

    sum over columns of value * max(steps_per_s - l, 0)  >=  sum over members of max(n_m(theta) - l, 0)

(Strassen's theorem on the increasing convex order; only l = 0 and the columns' own speeds matter). The right-hand side
is convex in theta, so tangents under-estimate it: linear programs over tangents approach the best theta from outside
(Kelley's method), quadratically near it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from scheduling.errors import SolverError
from scheduling.policies.time_shares.programs.groups import Fractions
from scheduling.policies.time_shares.programs.ungrouping.ungroup_pairs import split
from scheduling.solvers.lp import INFINITY, Engine, Floats, Ints, LinearProgram

_ROUNDS = 200
_TOLERANCE, _COARSEST = 1e-9, 1e-6
_PATIENCE = 10

#: theta -> (what each job needs in steps/s, how fast that changes with theta)
Needs = Callable[[float], tuple[Floats, Floats]]


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the program: sum(weight * max(need - level, 0)) - constant of the members, divided by `scale`."""

    index: int
    scale: float
    members: Ints
    weight: Floats
    level: float = 0.0
    constant: float = 0.0


def flat(rows: Sequence[Row]) -> tuple[Ints, Ints, Floats, Floats]:
    """(index in `rows`, member, weight, level) for every member of every row."""
    if not rows:
        return np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0), np.empty(0)
    sizes = [len(row.members) for row in rows]
    number, level = np.repeat(np.arange(len(rows)), sizes), np.repeat([row.level for row in rows], sizes)
    return number, np.concatenate([row.members for row in rows]), np.concatenate([row.weight for row in rows]), level


@dataclass
class CuttingPlanes:
    """Rows of `program` that state the members' needs; theta is its last variable, in units of `unit`."""

    found: Fractions
    program: LinearProgram
    unit: float = 1.0
    rows: list[Row] = field(default_factory=list)
    #: Fraction of its group's need by which a row may be missed.
    tolerance: float = _TOLERANCE
    #: Derived from jobs by group and need, which seldom change.
    _order: Ints | None = None

    def add(self, needs: Needs, theta: float, values: Floats) -> bool:
        """Add a row for every group that falls short at `theta`, at its worst level; False if none does."""
        found, levels = self.found, self.found.levels
        wanted, slope = needs(theta)
        groups = len(found.gang)
        size = np.bincount(found.group_of, weights=wanted, minlength=groups)
        most, least = np.zeros(groups), np.full(groups, np.inf)
        np.maximum.at(most, found.group_of, wanted)
        np.minimum.at(least, found.group_of, wanted)
        # If all members need the same, what holds at level 0 holds at every level.
        uneven = most > least * (1 + _TOLERANCE)
        matters = (levels.steps_per_s < most[levels.group]) & (uneven[levels.group] | (levels.steps_per_s == 0.0))
        total, rate = self._above(wanted, slope)
        short = (total - self._given(values)) / np.maximum(size, 1e-300)[levels.group]
        (missing,) = np.nonzero(matters & (short > self.tolerance))
        worst = {int(levels.group[n]): int(n) for n in missing[np.argsort(short[missing], kind="stable")]}
        if not worst:
            return False
        own = np.array([n for _, n in sorted(worst.items())], dtype=np.int64)
        short_of, level = levels.group[own], levels.steps_per_s[own]
        entries, sizes = found.entries, np.diff(found.entries.start)[short_of]
        start = np.concatenate(([0], np.cumsum(sizes)))
        at = np.arange(start[-1]) + np.repeat(entries.start[short_of] - start[:-1], sizes)
        offers = np.maximum(entries.steps_per_s[at] - np.repeat(level, sizes), 0.0) * entries.mass[at]
        added = self._add_rows(start, entries.column[at], offers, total[own], rate[own], theta)
        for (index, scale), group, least in zip(added, short_of.tolist(), level.tolist(), strict=True):
            self.rows.append(Row(index, scale, found.members[group], np.ones(found.count[group]), least))
        return True

    def renew(self, needs: Needs, theta: float) -> None:
        """Replace the rows by those of other needs."""
        wanted, slope = needs(theta)
        number, members, weight, level = flat(self.rows)
        above = np.maximum(wanted[members] - level, 0.0)
        total = np.bincount(number, weights=weight * above, minlength=len(self.rows))
        rate = np.bincount(number, weights=weight * slope[members] * (above > 0), minlength=len(self.rows))
        scale = np.array([row.scale for row in self.rows])
        lower = (total - np.array([row.constant for row in self.rows]) - rate * theta) / scale
        ends = -rate * self.unit / scale
        self.program.set_ends([row.index for row in self.rows], ends.tolist(), lower.tolist())

    def _above(self, wanted: Floats, slope: Floats) -> tuple[Floats, Floats]:
        """By level: the total need of the group's members above it, and its rate of change."""
        found, levels = self.found, self.found.levels
        if self._order is None or _unsorted(found.group_of[self._order], wanted[self._order]):
            self._order = np.lexsort((wanted, found.group_of))
        order = self._order
        group, wanted = found.group_of[order], wanted[order]
        ends = np.searchsorted(group, levels.group, "right")
        keys = group * levels.step + np.minimum(wanted, levels.step / 2)
        first = np.minimum(np.searchsorted(keys, levels.group * levels.step + levels.steps_per_s, "right"), ends)
        scale = found.fastest[levels.group]
        needs = _sums(wanted / found.fastest[group], first, ends) * scale
        return needs - (ends - first) * levels.steps_per_s, _sums(slope[order], first, ends)

    def _given(self, values: Floats) -> Floats:
        """By level: what the columns of the group provide above it."""
        entries, levels = self.found.entries, self.found.levels
        mass = (entries.mass * values[entries.column])[levels.order]
        ends, scale = entries.start[levels.group + 1], self.found.fastest[entries.group][levels.order]
        offers = _sums(mass * entries.steps_per_s[levels.order] / scale, levels.above, ends)
        return offers * self.found.fastest[levels.group] - _sums(mass, levels.above, ends) * levels.steps_per_s

    def add_cuts(self, needs: Needs, theta: float, values: Floats) -> bool:
        """Add a row for every group with pairs inside it whose members cannot all be served; False if there is none."""
        found, entries, before = self.found, self.found.entries, self.program.rows
        (shared,) = np.nonzero((entries.mass == 2.0) & (values[entries.column] > 0.0))
        wanted, slope = needs(theta)
        for group in np.unique(entries.group[shared]).tolist():
            members = found.members[group]
            _, cut = split(found, group, values, wanted[members], max(1e-7, self.tolerance))
            if cut is not None and cut.weight.any():
                total = float(cut.weight @ wanted[members]) - cut.constant
                rate = float(cut.weight @ slope[members])
                start, columns = np.array([0, len(cut.price)]), entries.column[entries.of(group)]
                (place,) = self._add_rows(start, columns, cut.price, np.array([total]), np.array([rate]), theta)
                held = cut.weight > 0
                self.rows.append(Row(*place, members[held], cut.weight[held], constant=cut.constant))
        return self.program.rows > before

    def _add_rows(
        self, start: Ints, columns: Ints, offers: Floats, total: Floats, rate: Floats, theta: float
    ) -> list[tuple[int, float]]:
        """offers * values >= total + rate * (theta' - theta) for each stretch of the columns, none of which is empty,
        scaled to numbers near 1: (index, scale)."""
        last = len(self.program.costs) - 1
        scale = np.maximum(np.abs(total), np.abs(rate) * max(abs(theta), self.unit))
        largest = np.maximum.reduceat(np.abs(offers), start[:-1])
        scale = np.where(scale > 1e-9 * largest, scale, largest)  # a cut may only say that a column stays empty
        values = np.insert(offers / np.repeat(scale, np.diff(start)), start[1:], -rate * self.unit / scale)
        lower = (total - rate * theta) / scale
        where = start + np.arange(len(start)), np.insert(columns, start[1:], last)
        added = self.program.add_rows(*where, values, lower, np.full(len(lower), INFINITY))
        return list(zip(added, scale.tolist(), strict=True))


def _unsorted(group: Ints, wanted: Floats) -> bool:
    return bool(((np.diff(wanted) < 0) & (np.diff(group) == 0)).any())


def _sums(values: Floats, first: Ints, end: Ints) -> Floats:
    """The sum of each stretch."""
    running = np.concatenate(([0.0], np.cumsum(values)))
    return np.asarray(running[end] - running[first])


def optimise(
    tangents: CuttingPlanes, needs: Needs, theta: float, engine: Engine, time_limit_s: float
) -> tuple[float, Floats, Floats]:
    """(theta, value of each column, dual values) at the best theta; `theta` is a starting value, near it or beyond."""
    program = tangents.program
    width = len(program.costs) - 1
    most_levels = int(np.bincount(tangents.found.levels.group).max())
    values, duals, still = np.zeros(width), np.zeros(program.rows), 0
    for _ in range(_ROUNDS):
        if not (tangents.add(needs, theta, values) or tangents.add_cuts(needs, theta, values)):
            return theta, values, duals
        solution = program.solve(engine, time_limit_s)
        values, duals = solution.values[:width], solution.duals
        before, theta = theta, float(solution.values[width]) * tangents.unit
        still = still + 1 if abs(theta - before) <= _TOLERANCE * abs(theta) else 0
        # Theta may stand still while rows for other levels are added. Beyond this many the precision of the engine is
        # reached: CBC prints eight digits.
        if still > most_levels + _PATIENCE and tangents.tolerance < _COARSEST:
            tangents.tolerance *= 10
    raise SolverError("no convergence")
