"""The solution of an interior-point engine, which differs from a simplex's: near the centre of all optima.

The reference solves its programs with an engine for cone programs, and where an objective has several optima, its
rounds depend on the engine's choice. So this follows the published algorithm of that kind: minimise c x with G x + s =
h, s in the cone, by the homogeneous self-dual embedding with Mehrotra's corrector and Nesterov-Todd scaling (Domahidi,
Chu and Boyd, "ECOS: an SOCP solver for embedded systems", 2013), to the same tolerances.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse import block_array, csc_matrix
from scipy.sparse.linalg import splu

from scheduling.errors import SolverError
from scheduling.solvers.cone import Cone, Scaling
from scheduling.solvers.lp import Floats

_ROUNDS, _TOLERANCE, _STEP = 100, 1e-8, 0.99
#: Accepted accuracy if rounding stops it early.
_COARSE, _COARSE_GAP = 1e-4, 5e-5
_LEAST_CENTRING, _LEAST_STEP, _MOST_STEP = 1e-4, 1e-6, 0.999
_EQUILIBRATIONS, _REFINEMENTS = 3, 2


def centre(costs: Floats, rows: Floats, bounds: Floats, quadratic: int = 0) -> Floats:
    """x with the least costs * x subject to rows * x <= bounds, near the centre of all such; each three of the last 3 *
    `quadratic` rows form a quadratic cone instead."""
    program, scales = _equilibrated(_Program(costs, rows, bounds, Cone(len(bounds) - 3 * quadratic, quadratic)))
    with np.errstate(all="ignore"):  # rounding may end it; then the best point so far is used
        return np.asarray(_walk(program) / scales)


@dataclass(frozen=True, slots=True)
class _Program:
    costs: Floats
    rows: Floats
    bounds: Floats
    cone: Cone


def _equilibrated(program: _Program) -> tuple[_Program, Floats]:
    """Rows and columns of about the same size, and the scaling factors of the variables."""
    rows, cone = program.rows.copy(), program.cone
    of_row, of_column = np.ones(rows.shape[0]), np.ones(rows.shape[1])
    for _ in range(_EQUILIBRATIONS):
        size = np.abs(rows)
        numbers, triples = cone.split(size.max(axis=1))
        row = _root(cone.join(numbers, np.repeat(triples.sum(axis=1), 3)))
        column = _root(size.max(axis=0))
        rows /= row[:, None] * column[None, :]
        of_row, of_column = of_row * row, of_column * column
    return _Program(program.costs / of_column, rows, program.bounds / of_row, cone), of_column


def _root(size: Floats) -> Floats:
    return np.where(size < 1e-6, 1.0, np.sqrt(size))


@dataclass(slots=True)
class _Point:
    """`level` and `gauge` (tau and kappa) tell whether a solution exists: x / level is the candidate."""

    x: Floats
    slack: Floats
    price: Floats
    level: float = 1.0
    gauge: float = 1.0


def _walk(program: _Program) -> Floats:
    point, best = _start(program), None
    for _ in range(_ROUNDS):
        off, gap = _distances(program, point)
        if not np.isfinite(off + point.level):
            break
        if off < _COARSE and gap < _COARSE_GAP:
            best = point.x / point.level
        if off < _TOLERANCE and gap < _TOLERANCE:
            return point.x / point.level
        try:
            _Newton(program, point).advance()
        except (RuntimeError, ValueError):  # singular, or not a number
            break
    if best is None:
        raise SolverError("no convergence")
    return best


def _start(program: _Program) -> _Point:
    """The least squares of slacks and of duals, pushed into the cone."""
    system = _System(program, None)
    x, back = system.solve(np.zeros_like(program.costs), program.bounds)
    _, price = system.solve(-program.costs, np.zeros_like(program.bounds))
    inside = program.cone.pushed_inside
    return _Point(x, inside(-back, _STEP), inside(price, _STEP))


def _distances(program: _Program, point: _Point) -> tuple[float, float]:
    """Relative infeasibility, and the gap: the smaller of the absolute and the relative one."""
    dual = program.rows.T @ point.price + program.costs * point.level
    primal = point.slack + program.rows @ point.x - program.bounds * point.level
    norm = np.linalg.norm
    off_dual = norm(dual) / (max(1.0, float(norm(program.costs))) + norm(point.price))
    off = norm(primal) / (max(1.0, float(norm(program.bounds))) + norm(point.x) + norm(point.slack))
    gap, cost, bound = point.slack @ point.price, program.costs @ point.x, -(program.bounds @ point.price)
    relative = gap / -cost if cost < 0 else gap / bound if bound > 0 else np.inf
    return float(max(off_dual, off) / point.level), float(min(gap, relative * point.level))


class _System:
    """[0 G'; G -W^2], factored."""

    def __init__(self, program: _Program, scaling: Scaling | None) -> None:
        rows = csc_matrix(program.rows)
        high, wide = rows.shape
        square = scaling.squared() if scaling is not None else csc_matrix(np.eye(high))
        self._matrix = csc_matrix(block_array([[csc_matrix((wide, wide)), rows.T], [rows, -square]]))
        self._wide, self._factor = wide, splu(self._matrix)

    def solve(self, above: Floats, below: Floats) -> tuple[Floats, Floats]:
        right = np.concatenate((above, below))
        found = self._factor.solve(right)
        for _ in range(_REFINEMENTS):
            found += self._factor.solve(right - self._matrix @ found)
        return found[: self._wide], found[self._wide :]


@dataclass(frozen=True, slots=True)
class _Step:
    x: Floats
    slack: Floats  # scaled
    price: Floats  # scaled
    level: float
    gauge: float


class _Newton:
    """A step from a point: the solution of the linearised conditions, with Mehrotra's correction."""

    def __init__(self, program: _Program, point: _Point) -> None:
        self.program, self.point = program, point
        self.scaling = Scaling(program.cone, point.slack, point.price)
        self._system = _System(program, self.scaling)
        self._of_level = self._system.solve(-program.costs, program.bounds)

    def advance(self) -> None:
        point, cone, target = self.point, self.program.cone, self.scaling.point
        square = cone.product(target, target)
        first = self._step(1.0, square, point.gauge * point.level)
        centring = min(max((1.0 - self._length(first)) ** 3, _LEAST_CENTRING), 1.0)
        mean = float(point.slack @ point.price + point.gauge * point.level) / (cone.degree + 1)
        push = square + cone.product(first.slack, first.price) - centring * mean * cone.unit
        gauge = point.gauge * point.level + first.level * first.gauge - centring * mean
        step = self._step(1.0 - centring, push, gauge)
        length = _STEP * self._length(step)
        point.x = point.x + length * step.x
        point.slack = point.slack + length * self.scaling.times(step.slack)
        point.price = point.price + length * self.scaling.over(step.price)
        point.level += length * step.level
        point.gauge += length * step.gauge

    def _step(self, part: float, push: Floats, gauge: float) -> _Step:
        """Towards `part` of the residuals' end, slack times dual less by `push` and level times gauge by `gauge`."""
        program, point = self.program, self.point
        dual = program.rows.T @ point.price + program.costs * point.level
        primal = point.slack + program.rows @ point.x - program.bounds * point.level
        cost = point.gauge + program.costs @ point.x + program.bounds @ point.price
        pushed = program.cone.quotient(self.scaling.point, push)
        x, price = self._system.solve(-part * dual, -part * primal + self.scaling.times(pushed))
        by_level = point.gauge / point.level - program.costs @ self._of_level[0] - program.bounds @ self._of_level[1]
        wanted = part * cost - gauge / point.level + program.costs @ x + program.bounds @ price
        level = float(wanted / by_level)
        x, price = x + level * self._of_level[0], price + level * self._of_level[1]
        scaled = self.scaling.times(price)
        return _Step(x, -pushed - scaled, scaled, level, float(-gauge - point.gauge * level) / point.level)

    def _length(self, step: _Step) -> float:
        reach, point = self.scaling.reach, self.point
        shortest = max(reach(step.slack), reach(step.price), -step.level / point.level, -step.gauge / point.gauge)
        return float(min(max(1.0 / max(shortest, 1e-13), _LEAST_STEP), _MOST_STEP))
