"""The most throughput for the money: maximise throughput(X) / cost(X).

If no job has to run, no mix has a better ratio than its best column: a ratio of sums is between the ratios. Otherwise
it is a linear-fractional program, solved by Dinkelbach's iteration: with the best ratio r so far, maximise
throughput(X) - r * cost(X); if that is 0, r is the optimum. Each step keeps the previous basis. Source: Gavel (OSDI
2020), section 4.2.
"""

from __future__ import annotations

import numpy as np

from scheduling.errors import SolverError
from scheduling.policies.time_shares.programs.groups import Fractions
from scheduling.solvers.lp import INFINITY, Engine, Floats, LinearProgram

_ROUNDS = 50
_TOLERANCE = 1e-10
#: Per GPU-hour, if no price above 0 is known.
UNPRICED = 1.0


def cost_of_columns(found: Fractions, prices: dict[str, float]) -> Floats:
    """Money per hour of each column; a type without a price costs something, so that the ratio stays defined."""
    price = np.array([prices.get(kind) or UNPRICED for kind in found.types])
    return np.asarray(price[found.columns.kind] * found.gang[found.columns.group])


def best_value(
    found: Fractions, worth: Floats, cost: Floats, engine: Engine, time_limit_s: float
) -> tuple[float, Floats]:
    """(ratio, values) if no job has to run: of the columns with the best ratio those with the most throughput, so that
    GPUs are not left idle."""
    value = worth / cost
    ratio, values = float(value.max()), np.zeros(len(worth))
    (best,) = np.nonzero(value >= ratio * (1 - _TOLERANCE))
    values[best] = found.only(best).program(worth[best]).solve(engine, time_limit_s).values
    return ratio, values


def best_ratio(
    program: LinearProgram, worth: Floats, cost: Floats, engine: Engine, time_limit_s: float
) -> tuple[float, Floats]:
    """(ratio, values): of all values with the best ratio one with the most throughput, so that GPUs are not left
    idle."""
    width = len(worth)
    pad = np.zeros(len(program.costs) - width)
    ratio, best = 0.0, np.zeros(width)
    for _ in range(_ROUNDS):
        program.set_costs(np.concatenate((worth - ratio * cost, pad)))
        values = program.solve(engine, time_limit_s).values[:width]
        spent = float(cost @ values)
        if spent <= 0.0:
            break
        reached = float(worth @ values) / spent
        if reached <= ratio * (1 + _TOLERANCE):
            break
        ratio, best = reached, values
    else:
        raise SolverError("no convergence")
    most = program.add_row(np.arange(width), (worth - ratio * (1 - _TOLERANCE) * cost) / worth.max(), 0.0, INFINITY)
    program.set_costs(np.concatenate((worth, pad)))
    try:
        best = program.solve(engine, time_limit_s).values[:width]
    finally:
        program.truncate(most)
    return ratio, best
