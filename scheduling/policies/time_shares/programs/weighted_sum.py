"""Throughput sums in which earlier jobs of an order weigh more.

maximise sum_m throughput(m, X) / throughput(m, X_fastest) * (M - position_m), X valid.
"""

from __future__ import annotations

import numpy as np

from scheduling.policies.time_shares.programs.groups import Fractions
from scheduling.policies.time_shares.programs.max_sum import largest_sum
from scheduling.policies.time_shares.programs.ungrouping.ungroup import Shares, expand
from scheduling.solvers.lp import Engine, Ints


def maximise_in_order(found: Fractions, position: Ints, engine: Engine, time_limit_s: float) -> tuple[float, Shares]:
    """`found` has a separate group for every job; `position` counts from 0."""
    rank = (len(position) - position).astype(float)[np.concatenate(found.members)]
    objective, values = largest_sum(found, found.worth_of_columns(rank / found.fastest), engine, time_limit_s)
    return objective, expand(found, values)
