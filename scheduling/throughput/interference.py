"""How programs that share a GPU slow each other down, fitted to the published measurements of pairs (docs/packing.md).

A program a beside programs b takes 1 + s_a u_a sum(p_b u_b) times as long for a step, where u is what each would use of
the GPU's time alone at that moment; the GPU's time is a lower bound: if the u sum to more than 1, steps take at least
that sum. s (sensitivity) and p (pressure) come from the pairs: in a pair that keeps the GPU busy (u = 1, assumed for
the measured training loops) a keeps 1 / (1 + s_a p_b), so the logit of the kept fraction is the sum of one number for
each program, and a logistic regression with a ridge finds them. Unmeasured programs get the medians. Unmeasured types
get the figures of P100.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from scheduling.throughput.published import kind_numbers, published_table

Floats = np.ndarray[Any, np.dtype[np.float64]]
#: The type that stands for unmeasured ones.
STAND_IN = "p100"
RIDGE = 0.1
_SWEEPS = 25
#: Bounds of measured fractions: a logit needs them inside (0, 1).
_NEAR = 1e-3


@dataclass(frozen=True, slots=True)
class Nature:
    """How sensitive a program is to neighbours, and how much it affects them."""

    sensitivity: float
    pressure: float


def fit(kept: Floats, ridge: float = RIDGE) -> tuple[Floats, Floats]:
    """(logarithms of sensitivities by row, of pressures by column) for kept fractions; NaN: not measured, 0: they do
    not fit.

    Newton's steps on the ridge-penalised cross entropy, which is convex.
    """
    known = np.isfinite(kept) & (kept > 0)
    rows, columns = np.nonzero(known)
    share = np.clip(kept[known], _NEAR, 1 - _NEAR)
    design = np.zeros((len(share), kept.shape[0] + kept.shape[1]))
    design[np.arange(len(share)), rows] = 1.0
    design[np.arange(len(share)), kept.shape[0] + columns] = 1.0
    found = np.zeros(design.shape[1])
    for _ in range(_SWEEPS):
        guess = 1.0 / (1.0 + np.exp(design @ found))
        slope = design.T @ (guess - share) - ridge * found
        curvature = design.T @ (design * (guess * (1 - guess))[:, None]) + ridge * np.eye(len(found))
        found = found + np.linalg.solve(curvature, slope)
    return found[: kept.shape[0]], found[kept.shape[0] :]


def predicted(sensitivities: Floats, pressures: Floats) -> Floats:
    """[a, b]: the fraction that a keeps beside b."""
    return np.asarray(1.0 / (1.0 + np.exp(sensitivities[:, None] + pressures[None, :])))


@cache
def natures(kind: str) -> Mapping[str, Nature]:
    """By the published program's name, on an accelerator type; "" has the medians."""
    table = published_table()
    sensitivities, pressures = fit(table.retained(kind if kind in table.types else STAND_IN, 1))
    both = np.exp(sensitivities), np.exp(pressures)
    found = {name: Nature(float(both[0][n]), float(both[1][n])) for n, name in enumerate(table.kinds)}
    return {"": Nature(float(np.median(both[0])), float(np.median(both[1]))), **found}


def nature_of(workload: str, kind: str) -> Nature:
    """For a workload of the published table, or for any other."""
    known, number = natures(kind), kind_numbers().get(workload)
    return known["" if number is None else published_table().kinds[number]]


def slowdowns(group: Sequence[tuple[Nature, float]]) -> list[float]:
    """How many times as long each takes for a step beside the others, by (nature, present use of the GPU's time)."""
    if len(group) < 2:
        return [1.0] * len(group)
    total = sum(use for _, use in group)
    pressed = sum(nature.pressure * use for nature, use in group)
    return [
        max(1.0 + nature.sensitivity * use * (pressed - nature.pressure * use), total if use > 0 else 1.0, 1.0)
        for nature, use in group
    ]
