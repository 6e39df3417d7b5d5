"""The published table as reference tables of the estimator."""

from __future__ import annotations

from functools import cache

import numpy as np

from scheduling.throughput.estimator import Floats
from scheduling.throughput.published import published_table


def family(kind: str) -> str:
    """The model of a kind, whatever its batch size."""
    return kind.split(" (")[0]


@cache
def retained(gang: int) -> Floats:
    """One row per kind: its retained throughput on each type beside each kind; 0 does not fit, NaN unknown."""
    table = published_table()
    return np.concatenate([table.retained(kind, gang) for kind in table.types], axis=1)


@cache
def logarithms() -> Floats:
    """One row per kind: logarithms of steps/s alone by (type, gang), then of gangs apart; NaN where it does not run."""
    table = published_table()
    columns = [
        values[kind, gang] for values in (table.alone, table.spread) for kind in table.types for gang in table.gangs
    ]
    whole = np.array(columns).T
    logs = np.log(whole, out=np.full(whole.shape, np.nan), where=whole > 0)
    return np.asarray(logs[:, ~np.isnan(logs).all(axis=0)])
