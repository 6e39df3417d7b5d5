"""F-scheduling with an optimal plan instead of the greedy one.

Objective: the largest sum of S (or of steps/s). Constraints: those of `f_scheduling`, variance of S < v_bound among
them. The jobs in the plan are those of Listing 1's first step; only their counts are chosen here, by integer
programming: variance < v is not convex, but with the mean m of S in [l, h] it follows from the linear sum s^2 <= v J +
(l + h) sum s - l h J, exact at the ends; intervals are split where a solution breaks the bound (spatial branch and
bound). Ours (spec, "Where the paper stops").
"""

from __future__ import annotations

import time
from typing import Any, ClassVar

from pydantic import Field

from scheduling.capacity.cluster_view import view
from scheduling.domain import Allocation, Reason, Snapshot
from scheduling.errors import SolverError
from scheduling.policies.base import Parameters as BaseParameters
from scheduling.policies.capabilities import Answer, Capabilities
from scheduling.policies.elastic.f_scheduling import FScheduling, Problem, answer, pose, solve, useful
from scheduling.policies.elastic.f_scheduling import Parameters as GreedyParameters
from scheduling.policies.elastic.variance_greedy import UNITS, GangChoice, at
from scheduling.policies.elastic.variance_program import Choice, SearchBudget, best_plan
from scheduling.solvers.budget import time_budget_s


class Parameters(GreedyParameters):
    time_limit_s: float = Field(
        default=10.0, gt=0.0, le=600.0, description="After this the greedy plan is used and the figures say so."
    )
    most_programs: int = Field(
        default=2_000,
        ge=1,
        le=1_000_000,
        description="Integer programs for one plan; after that the greedy plan is used.",
    )
    most_nodes: int = Field(
        default=20_000, ge=1, le=10_000_000, description="Search nodes in each; after that the greedy plan is used."
    )


class FSchedulingExact:
    name: ClassVar[str] = "f_scheduling_exact"
    title: ClassVar[str] = "F-scheduling, exact"
    Parameters: ClassVar[type[BaseParameters]] = Parameters
    capabilities = Capabilities(Answer.COUNTS, elastic=True)

    def __init__(self, parameters: Any = None) -> None:
        self.parameters: Parameters = parameters if isinstance(parameters, Parameters) else Parameters()

    def allocate(self, snapshot: Snapshot) -> Allocation:
        settings = self.parameters
        deadline = time.monotonic() + time_budget_s(snapshot, settings.time_limit_s)
        field = view(snapshot)
        problem = pose(snapshot, field, settings.objective)
        greedy, variance = solve(snapshot, field, problem, settings.v_bound)
        if not problem.jobs:
            return FScheduling(settings).allocate(snapshot)
        figures = {"greedy_sum": _sum(problem, greedy), "greedy_variance": variance}
        try:
            work = SearchBudget(settings.most_programs, settings.most_nodes, deadline)
            seats = best_plan(problem, greedy, settings.v_bound, work)
        except SolverError as error:
            return self._greedy_instead(snapshot, figures | {"solver_failed": 1.0}, str(error))
        if seats is None:  # no plan meets the bound: the least unfair plan known is the greedy one
            return self._greedy_instead(snapshot, figures, "no plan keeps the variance under its bound")
        figures |= {"variance": _variance(problem, seats), "exact_sum": _sum(problem, seats), "exact": 1.0}
        if figures["greedy_sum"] > 0 and variance < settings.v_bound:
            figures["gap"] = figures["exact_sum"] / figures["greedy_sum"] - 1.0
        if settings.objective == "relative":
            seats = [useful(problem, i, seat) for i, seat in enumerate(seats)]
        return answer(snapshot, field, problem, seats, settings.v_bound, figures)

    def _greedy_instead(self, snapshot: Snapshot, figures: dict[str, float], why: str) -> Allocation:
        plan = FScheduling(self.parameters).allocate(snapshot)
        reasons = {
            key: Reason(reason.token, f"{reason.text} The greedy plan was used because {why}.", reason.detail)
            for key, reason in plan.reasons.items()
        }
        return Allocation(counts=plan.counts, reasons=reasons, figures={**figures, **plan.figures, "exact": 0.0})


def _sum(problem: Problem, seats: list[GangChoice]) -> float:
    return sum(at(kind.value[t], n) for kind, (t, n) in zip(problem.kinds, seats, strict=True)) / UNITS


def _variance(problem: Problem, seats: list[GangChoice]) -> float:
    return Choice.of(problem, seats).variance
