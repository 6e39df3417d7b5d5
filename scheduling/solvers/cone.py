"""The cone of an interior-point method: positive numbers, then quadratic cones of dimension three.

A quadratic cone is {(v0, v1, v2): v0 >= |(v1, v2)|}. Products, scalings and step lengths are those of its Jordan
algebra (Vandenberghe, "The CVXOPT linear and quadratic cone program solvers", 2010).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse import block_diag, csc_matrix, diags_array

from scheduling.solvers.lp import Floats

_J = np.array([1.0, -1.0, -1.0])


@dataclass(frozen=True, slots=True)
class Cone:
    linear: int  # number of positive numbers
    quadratic: int  # number of triples after them

    @property
    def degree(self) -> int:
        return self.linear + self.quadratic

    @property
    def unit(self) -> Floats:
        return self.join(np.ones(self.linear), np.tile([1.0, 0.0, 0.0], (self.quadratic, 1)))

    def split(self, vector: Floats) -> tuple[Floats, Floats]:
        return vector[: self.linear], vector[self.linear :].reshape(self.quadratic, 3)

    def join(self, numbers: Floats, triples: Floats) -> Floats:
        return np.concatenate((numbers, triples.ravel()))

    def product(self, one: Floats, other: Floats) -> Floats:
        (a, u), (b, v) = self.split(one), self.split(other)
        rest = u[:, :1] * v[:, 1:] + v[:, :1] * u[:, 1:]
        return self.join(a * b, np.column_stack(((u * v).sum(axis=1), rest)))

    def quotient(self, divisor: Floats, value: Floats) -> Floats:
        """The vector that multiplied by `divisor` gives `value`."""
        (a, u), (b, v) = self.split(divisor), self.split(value)
        first = (u * _J * v).sum(axis=1) / _norm(u) ** 2
        return self.join(b / a, np.column_stack((first, (v[:, 1:] - first[:, None] * u[:, 1:]) / u[:, :1])))

    def pushed_inside(self, vector: Floats, least: float) -> Floats:
        """Moved along the unit until 1 beyond the boundary; by 1 - `least` if it is inside already."""
        numbers, triples = self.split(vector)
        inside = np.concatenate((numbers, triples[:, 0] - np.hypot(triples[:, 1], triples[:, 2])))
        lowest = float(inside.min())
        return vector + (1.0 + (max(-least, -lowest) if lowest <= 0 else -least)) * self.unit


def _norm(triples: Floats) -> Floats:
    """By triple: the root of v0^2 - v1^2 - v2^2."""
    length = np.hypot(triples[:, 1], triples[:, 2])
    return np.asarray(np.sqrt((triples[:, 0] - length) * (triples[:, 0] + length)))


class Scaling:
    """The symmetric W with W^-1 s = W z (Nesterov and Todd), and that vector, `point`."""

    def __init__(self, cone: Cone, slack: Floats, price: Floats) -> None:
        self.cone = cone
        (a, u), (b, v) = cone.split(slack), cone.split(price)
        self._numbers, norm_u, norm_v = np.sqrt(a / b), _norm(u), _norm(v)
        unit_u, unit_v = u / norm_u[:, None], v / norm_v[:, None]
        mean = np.sqrt((1.0 + (unit_u * unit_v).sum(axis=1)) / 2.0)
        self._axis = (unit_u + _J * unit_v) / (2.0 * mean)[:, None]
        self._size = np.sqrt(norm_u / norm_v)
        self.point = self.times(price)

    def times(self, vector: Floats) -> Floats:
        numbers, triples = self.cone.split(vector)
        return self.cone.join(numbers * self._numbers, self._turned(triples, 1.0) * self._size[:, None])

    def over(self, vector: Floats) -> Floats:
        numbers, triples = self.cone.split(vector)
        return self.cone.join(numbers / self._numbers, self._turned(triples, -1.0) / self._size[:, None])

    def _turned(self, triples: Floats, sign: float) -> Floats:
        axis, rest = self._axis[:, 0], self._axis[:, 1:]
        along = (rest * triples[:, 1:]).sum(axis=1)
        first = axis * triples[:, 0] + sign * along
        return np.column_stack((first, triples[:, 1:] + (sign * triples[:, 0] + along / (1.0 + axis))[:, None] * rest))

    def squared(self) -> csc_matrix:
        parts = [diags_array(self._numbers**2)]
        outer = 2.0 * self._axis[:, :, None] * self._axis[:, None, :] - np.diag(_J)
        parts += list(self._size[:, None, None] ** 2 * outer)
        return csc_matrix(block_diag(parts))

    def reach(self, change: Floats) -> float:
        """How far along `change`, which is scaled, the point stays inside: the inverse, at most 0 if unlimited."""
        (a, u), (b, v) = self.cone.split(self.point), self.cone.split(change)
        norm = _norm(u)
        unit = u / norm[:, None]
        along = (unit * _J * v).sum(axis=1)
        rest = v[:, 1:] - ((along + v[:, 0]) / (unit[:, 0] + 1.0))[:, None] * unit[:, 1:]
        beyond = (np.hypot(rest[:, 0], rest[:, 1]) - along) / norm
        return float(np.max(np.concatenate((-b / a, beyond))))
