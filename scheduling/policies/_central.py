"""The middle of all optima of a linear program, where an interior-point engine ends and a simplex does not.

Primal-dual path following with Mehrotra's corrector for min c x, G x <= h, dense: for the few hundred variables of
problems that are to be compared with an engine of that kind.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import lu_factor, lu_solve

from scheduling.errors import SolverError
from scheduling.policies._lp import Floats

_ROUNDS, _TOLERANCE, _STEP = 100, 1e-8, 0.99
#: The least part of the gap that a step keeps: with an objective, and (fitted to the reference) without one.
_CENTRING, _AIMLESS_CENTRING = 1e-4, 0.15


def centre(costs: Floats, rows: Floats, bounds: Floats) -> Floats:
    """x with the least costs * x where rows * x <= bounds, about in the middle of all such."""
    x = np.linalg.lstsq(rows, bounds, rcond=None)[0]
    slack, price = np.maximum(bounds - rows @ x, 1.0), np.ones(len(bounds))
    size = 1.0 + float(np.abs(costs).max(initial=0.0)), 1.0 + float(np.abs(bounds).max(initial=0.0))
    for _ in range(_ROUNDS):
        dual, primal = -costs - rows.T @ price, bounds - rows @ x - slack
        gap = float(slack @ price) / len(bounds)
        if max(np.abs(dual).max() / size[0], np.abs(primal).max() / size[1], gap) < _TOLERANCE:
            return np.asarray(x, dtype=float)
        newton = _Newton(rows, slack, price, dual, primal)
        _, ds, dz = newton.step(np.zeros(len(bounds)))
        length = min(1.0, _reach(slack, ds), _reach(price, dz))
        least = _CENTRING if costs.any() else _AIMLESS_CENTRING
        dx, ds, dz = newton.step(gap * max((1.0 - length) ** 3, least) - ds * dz)
        length = min(1.0, _STEP * min(_reach(slack, ds), _reach(price, dz)))
        x, slack, price = x + length * dx, slack + length * ds, price + length * dz
    raise SolverError("no convergence")


class _Newton:
    """Newton's equations at one point."""

    def __init__(self, rows: Floats, slack: Floats, price: Floats, dual: Floats, primal: Floats) -> None:
        self.rows, self.slack, self.price, self.dual, self.primal = rows, slack, price, dual, primal
        self.weight = price / slack
        normal = (rows * self.weight[:, None]).T @ rows
        # The ridge keeps from being singular what nothing bounds.
        self.scale = 1.0 / np.sqrt(np.diag(normal) + 1e-300)
        normal = normal * self.scale[:, None] * self.scale[None, :] + 1e-13 * np.eye(len(normal))
        self.factor = lu_factor(normal)

    def step(self, target: Floats) -> tuple[Floats, Floats, Floats]:
        """(dx, ds, dz) towards slack * price = target."""
        push = target / self.slack - self.price
        right = self.dual - self.rows.T @ (push - self.weight * self.primal)
        dx = self.scale * lu_solve(self.factor, self.scale * right)
        ds = self.primal - self.rows @ dx
        return dx, ds, push - self.weight * ds


def _reach(value: Floats, change: Floats) -> float:
    """How far along `change` the value stays positive."""
    falls = change < 0
    return float(np.min(-value[falls] / change[falls], initial=np.inf))
