"""How long solvers may work: so many steps anywhere, and so many seconds where the snapshot says that somebody waits.

Steps are the same on every machine, so what is simulated ends the same on a slow one; seconds keep live rounds short.
"""

from __future__ import annotations

import math

from scheduling.domain import Snapshot

#: The snapshot's setting: whether limits in seconds count. Live rounds say True, the simulator False.
CLOCK = "solver_clock"


def time_budget_s(snapshot: Snapshot, limit_s: float) -> float:
    """The limit of this round; infinite where only steps count."""
    return limit_s if snapshot.settings.get(CLOCK, True) else math.inf


def iterations(rows: int, columns: int) -> int:
    """Of the simplex or interior-point method on one linear program: several times what programs need."""
    return 10_000 + 20 * (rows + columns)
