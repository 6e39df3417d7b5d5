"""Linear programs as sparse rows: solved by HiGHS, which keeps its basis between changes, or by PuLP's CBC.

Rows go to HiGHS as arrays: with thousands of jobs, expression objects would take longer than the solve (decision 0007).
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import highspy
import numpy as np
import pulp
from numpy.typing import NDArray

from scheduling.errors import SolverError
from scheduling.solvers.budget import iterations

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Engine = Literal["highs", "cbc"]
INFINITY = highspy.kHighsInf
#: Programs with more columns are first solved by interior points with crossover, which is several times as fast for
#: them.
_MANY = 2_000


@dataclass(frozen=True, slots=True)
class Solution:
    """`duals` are the rows' shadow prices, in the sign of the engine; 0 for a row that is not binding."""

    values: Floats
    objective: float
    duals: Floats


class LinearProgram:
    """maximise (or minimise) costs * x, lower <= A x <= upper, 0 <= x <= bounds."""

    def __init__(self, costs: Floats, *, maximise: bool, bounds: Floats | None = None) -> None:
        self.costs = np.asarray(costs, dtype=float).copy()
        self.maximise = maximise
        self.options: dict[str, str] = {}  # options of HiGHS, besides the common ones
        self.bounds = np.full(len(self.costs), INFINITY) if bounds is None else np.asarray(bounds, dtype=float)
        self._columns: list[Ints] = []
        self._values: list[Floats] = []
        self._lower: list[float] = []
        self._upper: list[float] = []
        self._highs: highspy.Highs | None = None
        self.build_s = self.solve_s = 0.0

    @property
    def rows(self) -> int:
        return len(self._lower)

    def add_row(
        self, columns: Sequence[int] | Ints, values: Sequence[float] | Floats, lower: float, upper: float
    ) -> int:
        """Returns the new row's index."""
        self._columns.append(np.asarray(columns, dtype=np.int64))
        self._values.append(np.asarray(values, dtype=float))
        self._lower.append(lower)
        self._upper.append(upper)
        if self._highs is not None:
            row = len(self._columns[-1]), self._columns[-1].astype(np.int32), self._values[-1]
            self._highs.addRow(lower, upper, *row)
        return self.rows - 1

    def add_rows(self, start: Ints, columns: Ints, values: Floats, lower: Floats, upper: Floats) -> range:
        """Add several rows whose entries are concatenated: those of row n begin at `start[n]`, with one more entry for
        the end. Returns their indices. The program owns `values` from then on."""
        before = self.rows
        for first, end in pairwise(start.tolist()):
            self._columns.append(columns[first:end])
            self._values.append(values[first:end])
        self._lower += lower.tolist()
        self._upper += upper.tolist()
        if self._highs is not None and len(lower):
            where = start[:-1].astype(np.int32), columns.astype(np.int32)
            self._highs.addRows(len(lower), lower, upper, len(columns), *where, values)
        return range(before, self.rows)

    def truncate(self, rows: int) -> None:
        """Remove the rows from number `rows` on."""
        if self._highs is not None and rows < self.rows:
            gone = np.arange(rows, self.rows, dtype=np.int32)
            self._highs.deleteRows(len(gone), gone)
        for kept in (self._columns, self._values, self._lower, self._upper):
            del kept[rows:]

    def set_ends(self, rows: Sequence[int], values: Sequence[float], lower: Sequence[float]) -> None:
        """Change the last entry of each row, and its lower bound."""
        for row, value, least in zip(rows, values, lower, strict=True):
            self._values[row][-1], self._lower[row] = value, least
            if self._highs is not None:
                self._highs.changeCoeff(row, int(self._columns[row][-1]), value)
        if self._highs is not None and rows:
            bounds = np.array(lower), np.array([self._upper[row] for row in rows])
            numbers = np.array(rows, dtype=np.int32)
            self._highs.changeRowsBounds(len(rows), numbers, *bounds)  # type: ignore[attr-defined]  # not in its types

    def set_costs(self, costs: Floats) -> None:
        self.costs = np.asarray(costs, dtype=float).copy()
        if self._highs is not None:
            every = np.arange(len(self.costs), dtype=np.int32)
            self._highs.changeColsCost(len(self.costs), every, self.costs)

    def solve(self, engine: Engine = "highs", time_limit_s: float = 30.0) -> Solution:
        """An optimum; raises SolverError with the engine's own word if there is none."""
        if engine == "cbc":
            return self._solve_cbc(time_limit_s)
        try:
            return self._solve_highs(time_limit_s)
        except SolverError as error:
            if error.status in {"kInfeasible", "kUnbounded", "kUnboundedOrInfeasible", "kTimeLimit", "kIterationLimit"}:
                raise
            return self._solve_cbc(time_limit_s)

    # HiGHS ------------------------------------------------------------------------------------------

    def _solve_highs(self, time_limit_s: float) -> Solution:
        started = time.perf_counter()
        if self._highs is None:
            self._highs = self._pass_model()
        highs = self._highs
        highs.setOptionValue("time_limit", min(INFINITY, highs.getRunTime() + time_limit_s))
        for method in ("simplex", "ipm"):
            highs.setOptionValue(f"{method}_iteration_limit", iterations(self.rows, len(self.costs)))
        built = time.perf_counter()
        highs.run()
        highs.setOptionValue("solver", "simplex")  # from now on there is a basis to start from
        self.build_s += built - started
        self.solve_s += time.perf_counter() - built
        status = highs.getModelStatus()
        if status != highspy.HighsModelStatus.kOptimal:
            raise SolverError(status.name)
        solution = highs.getSolution()
        return Solution(
            np.maximum(np.asarray(solution.col_value), 0.0),
            float(highs.getInfo().objective_function_value),
            np.asarray(solution.row_dual),
        )

    def _pass_model(self) -> highspy.Highs:
        lp = highspy.HighsLp()
        lp.num_col_, lp.num_row_ = len(self.costs), self.rows
        lp.col_cost_, lp.col_lower_, lp.col_upper_ = self.costs, np.zeros(len(self.costs)), self.bounds
        lp.row_lower_, lp.row_upper_ = np.array(self._lower), np.array(self._upper)
        lp.sense_ = highspy.ObjSense.kMaximize if self.maximise else highspy.ObjSense.kMinimize
        lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        lengths = np.fromiter((len(row) for row in self._columns), dtype=np.int64, count=self.rows)
        lp.a_matrix_.start_ = np.concatenate(([0], np.cumsum(lengths))).astype(np.int32)
        lp.a_matrix_.index_ = np.concatenate([*self._columns, np.empty(0, np.int64)]).astype(np.int32)
        lp.a_matrix_.value_ = np.concatenate([*self._values, np.empty(0)])
        highs = highspy.Highs()  # type: ignore[no-untyped-call]
        for option, value in (("output_flag", False), ("threads", 1), ("random_seed", 0)):
            highs.setOptionValue(option, value)
        for name, word in self.options.items():
            highs.setOptionValue(name, word)
        if lp.num_col_ > _MANY:
            highs.setOptionValue("solver", "ipm")
        highs.setOptionValue("primal_feasibility_tolerance", 1e-9)
        highs.setOptionValue("dual_feasibility_tolerance", 1e-9)
        highs.passModel(lp)
        return highs

    # CBC --------------------------------------------------------------------------------------------

    def _solve_cbc(self, time_limit_s: float) -> Solution:
        started = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # PuLP 3 announces PuLP 4 without the bundled CBC; we stay below it
            problem = pulp.LpProblem("program", pulp.LpMaximize if self.maximise else pulp.LpMinimize)
            names = range(len(self.costs))
            tops = [None if top >= INFINITY else float(top) for top in self.bounds]
            variables = [pulp.LpVariable(f"x{n}", 0, tops[n]) for n in names]
            problem += pulp.LpAffineExpression([(variables[n], float(self.costs[n])) for n in names])
            rows = [self._cbc_row(problem, variables, row) for row in range(self.rows)]
            most = f"maxIterations {iterations(self.rows, len(self.costs))}"
            clock = None if math.isinf(time_limit_s) else time_limit_s
            solver = pulp.PULP_CBC_CMD(msg=False, timeLimit=clock, threads=1, options=[most])
        built = time.perf_counter()
        status = problem.solve(solver)
        self.build_s += built - started
        self.solve_s += time.perf_counter() - built
        if status != pulp.LpStatusOptimal or problem.sol_status != pulp.LpSolutionOptimal:
            limited = status == pulp.LpStatusOptimal
            raise SolverError("its limits" if limited else pulp.LpStatus[status])
        values = np.array([variable.varValue or 0.0 for variable in variables])
        duals = np.array([sum(constraint.pi or 0.0 for constraint in row) for row in rows])
        return Solution(np.maximum(values, 0.0), float(self.costs @ values), duals)

    def _cbc_row(self, problem: pulp.LpProblem, variables: list[pulp.LpVariable], row: int) -> list[pulp.LpConstraint]:
        terms = zip(self._columns[row].tolist(), self._values[row].tolist(), strict=True)
        expression = pulp.LpAffineExpression([(variables[column], value) for column, value in terms])
        lower, upper = self._lower[row], self._upper[row]
        made = []
        if lower > -INFINITY:
            made.append(expression >= lower)
        if upper < INFINITY and upper != lower:
            made.append(expression <= upper)
        for constraint in made:
            problem += constraint
        return made
