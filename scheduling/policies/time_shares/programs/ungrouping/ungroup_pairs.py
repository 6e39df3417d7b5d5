"""Splits a group's columns among its members if some columns are pairs within the group.

No job may have more than half of such a column: it would be its own partner. `cutting_planes` does not include this
condition, so a small linear program searches for a split that meets it. Its dual values yield the further row that the
master program needs (Benders' decomposition).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scheduling.policies.time_shares.programs.groups import Entries, Fractions
from scheduling.policies.time_shares.programs.ungrouping.ungroup_singles import assign_rest, split_by_demand
from scheduling.solvers.lp import INFINITY, Floats, LinearProgram

#: Fraction of the fastest column: a smaller need counts as none.
_NOTHING = 1e-9


@dataclass(frozen=True, slots=True)
class Cut:
    """sum(price * value of the group's entries) + constant >= sum(weight * needs of its members)."""

    price: Floats
    constant: float
    weight: Floats


def split(
    found: Fractions, group: int, values: Floats, demand: Floats | None, short: float = 1e-7
) -> tuple[Floats, Cut | None]:
    """[member, entry]: seconds per second; and, if more than the fraction `short` of the demand cannot be met, the
    reason as a cut."""
    entries: Entries = found.entries
    own = entries.of(group)
    mass, speeds = entries.mass[own], entries.steps_per_s[own]
    masses, within = values[entries.column[own]] * mass, mass == 2.0
    count = int(found.count[group])
    if demand is None or count == 1:
        return np.tile(masses / count, (count, 1)), None
    result = split_by_demand(masses, speeds, demand)
    if not masses[within].any():
        return result, None
    result = _alike(result, demand)
    if (result[:, within] <= masses[within] / 2 * (1 + 1e-9)).all():
        return result, None
    return _least_short(masses, speeds, demand, within, mass, short)


def _alike(result: Floats, demand: Floats) -> Floats:
    """Members of equal demand share equally."""
    _, alike = np.unique(np.round(demand / max(demand.max(), 1e-300), 12), return_inverse=True)
    sizes = np.bincount(alike)
    return np.stack([np.bincount(alike, weights=column) / sizes for column in result.T], axis=1)[alike]


def _least_short(
    masses: Floats, speeds: Floats, demand: Floats, within: NDArray[np.bool_], mass: Floats, short: float
) -> tuple[Floats, Cut | None]:
    """The split that reaches the largest common part of all demands, at most all of them."""
    (used,) = np.nonzero(masses > 0)
    members, width = len(demand), len(used)
    costs = np.zeros(members * width + 1)
    costs[-1] = 1.0
    program = LinearProgram(costs, maximise=True, bounds=np.append(np.full(members * width, INFINITY), 1.0))
    wants = [member for member in range(members) if demand[member] > _NOTHING * speeds.max()]
    turns = [
        program.add_row(np.arange(m * width, (m + 1) * width), np.ones(width), -INFINITY, 1.0) for m in range(members)
    ]
    reaches = [
        program.add_row(
            np.append(np.arange(m * width, (m + 1) * width), members * width),
            np.append(speeds[used] / demand[m], -1.0),
            0.0,
            INFINITY,
        )
        for m in wants
    ]
    totals = [
        program.add_row(np.arange(n, members * width, width), np.ones(members), -INFINITY, masses[column])
        for n, column in enumerate(used)
    ]
    # Both halves of a column within the group must belong to some member: all of it is assigned.
    wholes = [
        (column, program.add_row(np.arange(n, members * width, width), np.ones(members), masses[column], INFINITY))
        for n, column in enumerate(used)
        if within[column]
    ]
    halves = [
        (column, program.add_row([m * width + n], [1.0], -INFINITY, masses[column] / 2))
        for n, column in enumerate(used)
        if within[column]
        for m in range(members)
    ]
    solution = program.solve()
    result = np.zeros((members, len(masses)))
    result[:, used] = solution.values[:-1].reshape(members, width)
    result[:, ~within] = assign_rest(result, np.where(within, result.sum(axis=0), masses))[:, ~within]
    if solution.objective >= 1.0 - short:
        return result, None
    duals = np.abs(solution.duals)
    price, weight = np.zeros(len(masses)), np.zeros(members)
    price[used] = duals[totals] * mass[used]
    for column, row in wholes:
        price[column] -= duals[row] * mass[column]
    for column, row in halves:
        price[column] += duals[row] * mass[column] / 2
    # Columns that are not used yet would add the most that any member's row and need are worth there.
    weight[wants] = duals[reaches] / demand[wants]
    for column in np.nonzero(masses <= 0)[0]:
        gain = np.maximum(weight * speeds[column] - duals[turns], 0.0)
        worth = np.sort(gain)[::-1]
        price[column] = mass[column] * (worth[:2].mean() if within[column] else worth[0])
    return result, Cut(price, float(duals[turns].sum()), weight)
