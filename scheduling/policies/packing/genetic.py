"""A genetic algorithm places queued jobs together so that they fill the most GPUs.

Objective: maximise the GPUs, fractions included, used by the queued jobs of a window. Constraints: CPUs, memory and
single devices of one node; jobs blocked by a limit are left out. A solution names a node for each job (`assignment`),
or one job and its node, the best of which is taken until none fits (`pair`). Operators (spec: genetic-packing; Ewha
Womans University, 2024): 100 random solutions, tournaments among 20 % of them, single-point crossover, 40 % replaced in
each generation, and adaptive mutation. Fitness: what a placement gains, -1 for one that does not fit. The paper mutates
the better solutions more, the usual rule does the opposite; `mutation` chooses. It does not give the number of
generations; here they are bounded, also by time. Jobs that the best solution leaves out but that still fit go to the
first node with room.
"""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any, ClassVar, Literal

import numpy as np
import pygad
from pydantic import Field

from scheduling.capacity.node_capacity import Demand, Ints, NodeCapacity
from scheduling.domain import WHOLE, Snapshot
from scheduling.policies.base import Parameters as BaseParameters
from scheduling.policies.packing.base import PackingPolicy, Planned
from scheduling.policies.packing.genetic_fitness import FitnessTrial
from scheduling.solvers.budget import time_budget_s


class Parameters(BaseParameters):
    mode: Literal["assignment", "pair"] = Field(
        default="assignment", description="A node for every waiting job at once, or one best job and node at a time."
    )
    window: int = Field(default=48, ge=1, le=1_000, description="So many jobs at the head of the queue are decided on.")
    population: int = Field(default=100, ge=4, le=10_000, description="Solutions in each generation.")
    generations: int = Field(default=30, ge=1, le=100_000, description="Generations, where time allows.")
    time_limit_s: float = Field(default=2.0, gt=0.0, le=600.0, description="The best found by then is used.")
    replaced: float = Field(default=0.4, gt=0.0, lt=1.0, description="Part of the population that children replace.")
    tournament: float = Field(default=0.2, gt=0.0, le=1.0, description="Part of the population in a tournament.")
    mutation: Literal["paper", "usual"] = Field(
        default="usual", description="Whether solutions above the mean fitness or those below it are mutated more."
    )
    mutation_high: float = Field(default=0.25, ge=0.0, le=1.0, description="Chance of a gene where it is higher.")
    mutation_low: float = Field(default=0.1, ge=0.0, le=1.0, description="Chance of a gene where it is lower.")


class Genetic(PackingPolicy):
    name: ClassVar[str] = "genetic"
    title: ClassVar[str] = "Genetic packing"
    Parameters: ClassVar[type[BaseParameters]] = Parameters

    def plan(self, snapshot: Snapshot, node_capacity: NodeCapacity, wanted: Mapping[str, Demand]) -> Planned:
        settings: Parameters = self.parameters
        deadline = time.monotonic() + time_budget_s(snapshot, settings.time_limit_s)
        fitting = (key for key, demand in wanted.items() if len(node_capacity.fitting(demand)))
        window = list(islice(fitting, settings.window))
        if len(window) < 2:
            return Planned()  # all nodes are equally good
        search = _all_at_once if settings.mode == "assignment" else _one_by_one
        found = search(node_capacity.copy(), [wanted[key] for key in window], settings, snapshot.seed, deadline)
        return Planned({window[number]: gpus for number, gpus in found.items()})

    def choose(self, node_capacity: NodeCapacity, demand: Demand, rows: Ints, memory: Any) -> tuple[int, ...]:
        return node_capacity.tightest(int(rows[0]), demand)


def _all_at_once(
    node_capacity: NodeCapacity, demands: Sequence[Demand], settings: Parameters, seed: int, deadline: float
) -> dict[int, tuple[int, ...]]:
    trial = FitnessTrial(node_capacity, demands, _useful(node_capacity, demands))
    spaces = [np.flatnonzero(np.isin(trial.rows, node_capacity.fitting(demand))).tolist() for demand in demands]
    gains = _gains(demands)

    def fitness(_: Any, solutions: Any, __: Any) -> Any:
        fits = trial.placed(np.atleast_2d(np.asarray(solutions, dtype=np.int64)))
        worth = np.where(fits, gains, -1.0).sum(axis=1)
        return worth.tolist() if np.ndim(solutions) == 2 else float(worth[0])

    best = _evolve(spaces, fitness, float(gains.sum()), settings, seed, deadline)
    fits, found = trial.placed(best[None])[0], dict[int, tuple[int, ...]]()
    for number in np.flatnonzero(fits).tolist():
        row = int(trial.rows[best[number]])
        found[number] = node_capacity.tightest(row, demands[number])
        node_capacity.book(demands[number], found[number])
    return found


def _one_by_one(
    node_capacity: NodeCapacity, demands: Sequence[Demand], settings: Parameters, seed: int, deadline: float
) -> dict[int, tuple[int, ...]]:
    found, left = dict[int, tuple[int, ...]](), list(range(len(demands)))
    while left and time.monotonic() < deadline:
        fitting = {number: node_capacity.fitting(demands[number]) for number in left}
        left = [number for number in left if len(fitting[number])]
        if not left:
            break
        rows = np.unique(np.concatenate([fitting[number] for number in left]))
        fits = np.array([np.isin(rows, fitting[number]) for number in left])
        worth = np.where(fits, _gains([demands[number] for number in left])[:, None], -1.0)

        def fitness(_: Any, solutions: Any, __: Any, worth: Any = worth) -> Any:
            pairs = np.atleast_2d(np.asarray(solutions, dtype=np.int64))
            found = worth[pairs[:, 0], pairs[:, 1]]
            return found.tolist() if np.ndim(solutions) == 2 else float(found[0])

        spaces = [list(range(len(left))), list(range(len(rows)))]
        job, row = _evolve(spaces, fitness, float(worth.max()), settings, seed + len(found), deadline).tolist()
        if not fits[job, row]:
            break
        number = left.pop(job)
        found[number] = node_capacity.tightest(int(rows[row]), demands[number])
        node_capacity.book(demands[number], found[number])
    return found


def _useful(node_capacity: NodeCapacity, demands: Sequence[Demand]) -> Ints:
    """Nodes on which at least one of the jobs fits."""
    return np.unique(np.concatenate([node_capacity.fitting(demand) for demand in demands]))


def _gains(demands: Sequence[Demand]) -> Any:
    return np.array([demand.count * demand.milli / WHOLE for demand in demands])


def _evolve(
    spaces: list[list[int]], fitness: Any, most: float, settings: Parameters, seed: int, deadline: float
) -> Ints:
    """The best solution found: one of each space. `most` bounds the fitness."""
    size = settings.population
    children = min(size - 1, max(1, round(settings.replaced * size)))
    chances = (settings.mutation_high, settings.mutation_low)  # for solutions below the mean, and for the others
    numbers = random.Random(seed)  # noqa: S311  # nosec B311
    first = [[numbers.choice(space) for space in spaces] for _ in range(size)]

    def is_enough(search: Any) -> str | None:
        found = max(search.last_generation_fitness)
        return "stop" if found > most - 1e-9 or time.monotonic() > deadline else None

    before = np.random.get_state(), random.getstate()
    try:
        search = pygad.GA(
            num_generations=settings.generations,
            num_parents_mating=max(2, children),
            fitness_func=fitness,
            fitness_batch_size=size,
            initial_population=first,
            gene_type=int,
            gene_space=spaces,
            parent_selection_type="tournament",
            K_tournament=max(1, round(settings.tournament * size)),
            crossover_type="single_point",
            keep_elitism=size - children,
            mutation_type="adaptive",
            mutation_probability=list(chances if settings.mutation == "usual" else reversed(chances)),
            on_generation=is_enough,
            random_seed=seed,
            suppress_warnings=True,
        )
        search.run()
        best, _, _ = search.best_solution(search.last_generation_fitness)
    finally:  # it seeds the global generators
        np.random.set_state(before[0])
        random.setstate(before[1])
    return np.asarray(best, dtype=np.int64)
