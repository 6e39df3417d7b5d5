"""The integer program of `f_scheduling_exact`, and the branch and bound around it."""

from __future__ import annotations

import heapq
import math
import time
from collections import Counter
from dataclasses import dataclass
from itertools import count
from typing import Any

import pulp

from scheduling.errors import SolverError
from scheduling.policies.elastic.f_scheduling import Problem
from scheduling.policies.elastic.variance_greedy import LARGEST_VARIANCE, UNITS, GangChoice, JobKind, at, groups_of
from scheduling.solvers.integer import solve_integers

#: Smaller differences count as equal; solvers work to about 1e-6.
TOLERANCE = 1e-7
_MOST_CELLS = 200_000


@dataclass(frozen=True, slots=True)
class Choice:
    """A plan and its moments; S in integer units, so that "under the bound" means the same as for the greedy."""

    seats: list[GangChoice]
    value: int
    mean: float
    variance: float

    @classmethod
    def of(cls, problem: Problem, seats: list[GangChoice]) -> Choice:
        shares = [at(kind.share[t], n) for kind, (t, n) in zip(problem.kinds, seats, strict=True)]
        shares += problem.others
        jobs, total = len(shares), sum(shares)
        spread = jobs * sum(share * share for share in shares) - total * total
        value = sum(at(kind.value[t], n) for kind, (t, n) in zip(problem.kinds, seats, strict=True))
        if not jobs:
            return cls(seats, value, 0.0, 0.0)
        return cls(seats, value, total / (jobs * UNITS), spread / (jobs * UNITS) ** 2)


@dataclass(slots=True)
class SearchBudget:
    """The budget of one answer: programs, search nodes in each, and seconds by `time.monotonic`."""

    programs: int
    nodes: int
    deadline: float = math.inf

    def spend(self) -> float:
        """Spend one program, and return its seconds. Raises SolverError if the budget is used up."""
        self.programs -= 1
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise SolverError("its time limit")
        if self.programs < 0:
            raise SolverError("its limit of programs")
        return left


def best_plan(problem: Problem, greedy: list[GangChoice], bound: float, work: SearchBudget) -> list[GangChoice] | None:
    """The plan of the largest value with variance < bound; None if there is none. Raises SolverError."""
    model = Model(problem, bound, work)
    best = Choice.of(problem, greedy)
    incumbent = best if best.variance < bound else None
    first = model.relax(0.0, 1.0)
    ticket = count()
    queue = [(-first.value, next(ticket), 0.0, 1.0, first)] if first else []
    while queue:
        bound_value, _, low, high, choice = heapq.heappop(queue)
        if incumbent is not None and -bound_value <= incumbent.value + TOLERANCE * UNITS:
            break
        if choice.variance < bound:
            return choice.seats  # no open interval has a better bound
        # The relaxation is exact at the ends of an interval, so splitting at this mean cuts this plan off.
        middle = choice.mean if low + TOLERANCE < choice.mean < high - TOLERANCE else (low + high) / 2
        if high - low < TOLERANCE:
            continue
        for part in ((low, middle), (middle, high)):
            found = model.relax(*part)
            if found is None:
                continue
            if found.variance < bound and (incumbent is None or found.value > incumbent.value):
                incumbent = found
            heapq.heappush(queue, (-found.value, next(ticket), *part, found))
    return incumbent.seats if incumbent else None


class Model:
    """Interchangeable jobs are one unit: how many of them have each (type, count)."""

    def __init__(self, problem: Problem, bound: float, work: SearchBudget) -> None:
        self.problem, self.bound, self.work = problem, bound, work
        self.members: dict[tuple[JobKind, int], list[int]] = {}
        for job, (kind, seat) in enumerate(zip(problem.kinds, problem.seats, strict=True)):
            only = seat[0] if kind.hurdle == float("inf") else -1  # a running job stays on its type
            self.members.setdefault((kind, only), []).append(job)
        self.cells = [
            (group, (t, n))
            for group, (kind, only) in enumerate(self.members)
            for t in range(len(problem.types))
            if only in (-1, t)
            for n in _counts(kind, t)
        ]
        if len(self.cells) > _MOST_CELLS:
            raise SolverError(f"a program of {len(self.cells)} variables, more than {_MOST_CELLS}")

    def relax(self, low: float, high: float) -> Choice | None:
        """The best plan with the mean of S in [low, high] under the linear bound; None if there is none."""
        left = self.work.spend()
        program, used = self._program(low, high)
        found = solve_integers(program, left, self.work.nodes)
        return Choice.of(self.problem, self._seats(used)) if found else None

    def _program(self, low: float, high: float) -> tuple[pulp.LpProblem, list[Any]]:
        kinds = [kind for kind, _ in self.members]
        size = [len(jobs) for jobs in self.members.values()]
        program = pulp.LpProblem("f_scheduling", pulp.LpMaximize)
        used = [program.add_variable(f"x{i}", 0, size[group], "Integer") for i, (group, _) in enumerate(self.cells)]
        values = [at(kinds[g].value[t], n) / UNITS for g, (t, n) in self.cells]
        shares = [at(kinds[g].share[t], n) / UNITS for g, (t, n) in self.cells]
        program += pulp.lpDot(values, used)
        for group, jobs in enumerate(size):
            program += pulp.lpSum(x for x, (g, _) in zip(used, self.cells, strict=True) if g == group) == jobs
        self._capacity(program, used, kinds)
        if self.bound <= LARGEST_VARIANCE:
            self._fairness(program, used, shares, low, high)
        return program, used

    def _capacity(self, program: pulp.LpProblem, used: list[Any], kinds: list[JobKind]) -> None:
        problem = self.problem
        taken = Counter[int]()
        held = Counter[int]()
        for kind, (t, n) in zip(problem.kinds, problem.seats, strict=True):
            taken[t] += n
            held.update(dict.fromkeys(groups_of(kind, t), n))
        for t, free in enumerate(problem.free):
            terms = [n * x for x, (_, (at_type, n)) in zip(used, self.cells, strict=True) if at_type == t]
            program += pulp.lpSum(terms) <= free + taken[t]
        for limit, room in enumerate(problem.headroom):
            terms = [n * x for x, (g, (t, n)) in zip(used, self.cells, strict=True) if limit in groups_of(kinds[g], t)]
            program += pulp.lpSum(terms) <= max(0, room) + held[limit]

    def _fairness(self, program: pulp.LpProblem, used: list[Any], shares: list[float], low: float, high: float) -> None:
        others = [share / UNITS for share in self.problem.others]
        jobs = len(self.problem.jobs) + len(others)
        total = pulp.lpDot(shares, used) + sum(others)
        squares = pulp.lpDot([share * share for share in shares], used) + sum(share * share for share in others)
        program += squares <= self.bound * jobs + (low + high) * total - low * high * jobs
        program += total >= low * jobs
        program += total <= high * jobs

    def _seats(self, used: list[Any]) -> list[GangChoice]:
        """Within a group the earlier jobs in queue order get the larger gangs: any order is optimal."""
        seats: dict[int, GangChoice] = {}
        waiting = [list(jobs) for jobs in self.members.values()]
        for x, (group, seat) in sorted(
            zip(used, self.cells, strict=True), key=lambda pair: (pair[1][0], -pair[1][1][1], pair[1][1][0])
        ):
            for _ in range(round(x.value() or 0)):
                seats[waiting[group].pop(0)] = seat
        return [seats[job] for job in range(len(self.problem.jobs))]


def _counts(kind: JobKind, t: int) -> list[int]:
    """Counts worth considering: the smallest for each value. More GPUs for the same value are wasted."""
    low, high = kind.low[t], kind.high[t]
    last = min(high, max(low, len(kind.value[t]) - 1))
    return [n for n in range(low, last + 1) if n == low or at(kind.value[t], n) > at(kind.value[t], n - 1)]
