"""Levels of jobs as the total level of a tree rises, ignoring capacity.

A node divides its total among its children by weight; a full child passes its part to the others. This has a closed
form, so any total is evaluated directly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from scheduling.solvers.lp import Floats, Ints


@dataclass
class LevelNode:
    """Either has children or `units` (of interchangeable jobs), served one after the other if `in_order`."""

    weight: float
    children: Sequence[LevelNode] = ()
    units: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    in_order: bool = False
    total_level: float = field(default=0.0, init=False)
    _parts: _Parts | None = field(default=None, init=False)

    def shape(self, tops: Floats, weights: Floats) -> float:
        """Compute where each unit ends (`tops` and `weights` are sums over its members); returns the total of all."""
        limits, own = tops[self.units], weights[self.units]
        if self.children:
            limits = np.array([child.shape(tops, weights) for child in self.children])
            own = np.array([child.weight for child in self.children])
        if not self.in_order:
            self._parts = _Parts(limits, own)
        self.total_level = float(limits.sum())
        return self.total_level

    def set_levels(self, total_level: float, rate: float, level: Floats, rise: Floats) -> None:
        """Set each unit's `level` (summed over its members) and its rate."""
        if self.in_order:
            tops = level[self.units]
            before = np.cumsum(tops) - tops
            level[self.units] = np.clip(total_level - before, 0.0, tops)
            rise[self.units] = np.where((before <= total_level) & (total_level < before + tops), rate, 0.0)
            return
        assert self._parts is not None
        filled, rising = self._parts.at(total_level, rate)
        if self.children:
            for child, part, speed in zip(self.children, filled.tolist(), rising.tolist(), strict=True):
                child.set_levels(part, speed, level, rise)
        else:
            level[self.units], rise[self.units] = filled, rising


class _Parts:
    """Children that fill in proportion to their weights up to their limits."""

    def __init__(self, limits: Floats, weights: Floats) -> None:
        self.limits, self.weights = limits, weights
        self.tops = limits / weights
        order = np.argsort(self.tops, kind="stable")
        self.sorted_tops = self.tops[order]
        #: Totals of those that are full once the n-th is.
        self.full = np.cumsum(limits[order])
        self.open = np.maximum(weights.sum() - np.cumsum(weights[order]), 0.0)
        self.volumes = self.full + self.sorted_tops * self.open

    def at(self, total_level: float, rate: float) -> tuple[Floats, Floats]:
        """(the amount in each child at this total, its rate)."""
        n = int(np.searchsorted(self.volumes, total_level, side="right"))
        if n == len(self.volumes):
            return self.limits, np.zeros(len(self.limits))
        full, weight = (self.full[n - 1], self.open[n - 1]) if n else (0.0, float(self.weights.sum()))
        height = (total_level - full) / weight
        rising = self.tops > (self.sorted_tops[n - 1] if n else -1.0)
        return np.where(rising, self.weights * height, self.limits), np.where(rising, self.weights * rate / weight, 0.0)
