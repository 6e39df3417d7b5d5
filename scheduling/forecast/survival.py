"""Distribution of a quantity with censored observations: Kaplan and Meier's estimate (1958)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Survival:
    """`at_most[n]` is the estimated probability of at most `values[n]`; below 1 at the end if the largest observations
    are censored."""

    values: Floats
    at_most: Floats

    @classmethod
    def of(cls, values: Sequence[float], over: Sequence[bool]) -> Survival:
        """`over`: the value is final; else it was that large when last observed, and grows."""
        order = np.lexsort((~np.asarray(over, dtype=bool), np.asarray(values, dtype=np.float64)))
        sorted_values = np.asarray(values, dtype=np.float64)[order]
        final = np.asarray(over, dtype=bool)[order]
        at_risk = np.arange(len(order), 0, -1)
        surviving = np.cumprod(np.where(final, 1.0 - 1.0 / at_risk, 1.0)) if len(order) else np.empty(0)
        return cls(sorted_values[final], 1.0 - surviving[final])

    def quantile(self, share: float) -> float:
        """The least value with at least that probability; infinite beyond the observations."""
        place = int(np.searchsorted(self.at_most, share - 1e-12))
        return float(self.values[place]) if place < len(self.values) else float("inf")

    def above(self, floor: float) -> int:
        """How many final values are larger."""
        return len(self.values) - int(np.searchsorted(self.values, floor, side="right"))

    def draw_above(self, floor: float, uniform: float) -> float:
        """A value, given that it is larger than `floor`; infinite in the unobserved tail."""
        place = int(np.searchsorted(self.values, floor, side="right"))
        below = float(self.at_most[place - 1]) if place else 0.0
        return self.quantile(below + uniform * (1.0 - below))
