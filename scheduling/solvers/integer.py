"""Integer programs, solved by the installed solver."""

from __future__ import annotations

import math
import warnings
from typing import Any

import pulp

from scheduling.errors import SolverError


def solve_integers(program: pulp.LpProblem, seconds: float, nodes: int) -> bool:
    """Whether a solution exists, which is then proven optimal. Raises SolverError if a limit ends the search."""
    try:
        status = pulp.LpStatus[program.solve(_integer_solver(seconds, nodes))]
    except KeyError:  # PuLP has no name for the status of HiGHS at its node limit
        raise SolverError("its limit of nodes") from None
    if status == "Infeasible":
        return False
    if status != "Optimal" or program.sol_status != pulp.LpSolutionOptimal:
        raise SolverError(f"{status.lower()} after its limits")
    return True


def _integer_solver(seconds: float, nodes: int) -> Any:
    """HiGHS, or CBC if it is missing, with limits of time and search nodes."""
    options = {"msg": False, "timeLimit": None if math.isinf(seconds) else seconds}
    highs = pulp.HiGHS(gapRel=0.0, threads=1, mip_max_nodes=nodes, **options)
    if highs.available():
        return highs
    with warnings.catch_warnings():  # PuLP 4 drops the bundled CBC; we are pinned below it
        warnings.simplefilter("ignore", DeprecationWarning)
        return pulp.PULP_CBC_CMD(gapRel=0.0, threads=1, maxNodes=nodes, **options)
