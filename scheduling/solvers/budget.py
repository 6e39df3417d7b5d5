"""Budgets of solvers: a number of steps always, and a number of seconds if the snapshot says so.

Steps are the same on every machine, so simulations end the same on a slow one; seconds keep live rounds short.
"""

from __future__ import annotations

import math

from scheduling.domain import Snapshot

#: The snapshot's setting: whether time limits apply. Live rounds set True, the simulator False.
CLOCK = "solver_clock"


def time_budget_s(snapshot: Snapshot, limit_s: float) -> float:
    """The time limit of this round; infinite if only steps are limited."""
    return limit_s if snapshot.settings.get(CLOCK, True) else math.inf


def iterations(rows: int, columns: int) -> int:
    """Iterations of the simplex or interior-point method for one linear program: several times what programs need."""
    return 10_000 + 20 * (rows + columns)
