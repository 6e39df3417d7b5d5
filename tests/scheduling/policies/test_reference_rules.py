"""What `compatible: true` repeats of the reference: its engine, its queue, its random orders and its whole steps."""

from __future__ import annotations

from collections import Counter
from itertools import permutations

import numpy as np
import pytest
from scipy.optimize import linprog

from scheduling.domain import Curve, Job, Node
from scheduling.policies.time_shares.gavel.fifo_queue import Queue
from scheduling.policies.time_shares.gavel.objective import drawn_order
from scheduling.policies.time_shares.programs.groups import build
from scheduling.simulator import simulate
from scheduling.simulator.inputs.trace import Cluster, TraceJob
from scheduling.solvers.interior_point import centre
from tests.builders import make_job, make_nodes, make_snapshot


@pytest.mark.parametrize("seed", range(10))
def test_the_engine_finds_the_optimum_of_a_linear_program(seed: int) -> None:
    random = np.random.default_rng(seed)
    rows = np.concatenate((random.uniform(0.1, 1.0, (6, 10)), -np.eye(10), np.eye(10)))
    bounds = np.concatenate((random.uniform(1.0, 3.0, 6), np.zeros(10), np.ones(10)))
    costs = -random.uniform(0.1, 1.0, 10)
    exact = linprog(costs, A_ub=rows, b_ub=bounds, bounds=(None, None))
    found = centre(costs, rows, bounds)
    assert costs @ found == pytest.approx(exact.fun, rel=1e-6)
    assert np.all(rows @ found <= bounds + 1e-7)


def test_what_the_objective_leaves_open_ends_in_the_middle() -> None:
    """x + y is at most 1, and how they divide that says nobody."""
    found = centre(np.array([-1.0, -1.0]), np.array([[1.0, 1.0], [-1.0, 0.0], [0.0, -1.0]]), np.array([1.0, 0.0, 0.0]))
    assert found == pytest.approx([0.5, 0.5], abs=1e-6)


def test_the_engine_takes_quadratic_cones() -> None:
    """The least u with u * q >= 1 and q <= 4 is a quarter: (q + u, q - u, 2) is in a cone."""
    rows = np.array([[1.0, 0.0], [-1.0, -1.0], [-1.0, 1.0], [0.0, 0.0]])
    found = centre(np.array([0.0, 1.0]), rows, np.array([4.0, 0.0, 0.0, 2.0]), quadratic=1)
    assert found == pytest.approx([4.0, 0.25], rel=1e-6)


def test_agnostic_rounds_draw_every_order_of_the_types_and_always_the_same_ones() -> None:
    drawn = [drawn_order(3, number) for number in range(600)]
    assert set(drawn) == set(permutations(range(3)))
    assert min(Counter(drawn).values()) > 60
    assert drawn[37] == drawn_order(3, 37)


def nodes_of(**gpus: int) -> list[Node]:
    nodes: list[Node] = []
    for kind, count in gpus.items():
        nodes += make_nodes(count, type=kind, first_id=100 * len(nodes))
    return nodes


def job_of(number: int, gpus: int = 1, **speeds: float) -> Job:
    curves = {kind: Curve((0.0,) * (gpus - 1) + (speed,)) for kind, speed in speeds.items()}
    return make_job(number=number, gpus=gpus, curves=curves)


def queue_of(*jobs: Job, **gpus: int) -> Queue:
    return Queue(build(make_snapshot(*jobs, nodes=nodes_of(**gpus)), variant="perf", pair_threshold=1.0, apart=True))


def test_agnostic_a_job_goes_to_the_last_type_with_a_gpu_whether_or_not_it_fits() -> None:
    speeds = {"p100": 1.0, "v100": 1.0}
    queue = queue_of(job_of(1, gpus=4, **speeds), job_of(2, gpus=8, **speeds), p100=8, v100=8)
    queue.blindly({"job-000001": "v100"}, 0)
    assert queue.in_order() == [("job-000001", "v100"), ("job-000002", "v100")]


def test_agnostic_a_job_that_fits_nowhere_holds_up_all_behind_it() -> None:
    queue = queue_of(job_of(1, gpus=4, v100=1.0), job_of(2, gpus=8, v100=1.0), job_of(3, v100=1.0), v100=8)
    queue.blindly({"job-000001": "v100"}, 0)
    assert queue.in_order() == [("job-000001", "v100")]


def test_agnostic_jobs_keep_their_type_and_the_first_of_the_queue_follows_who_ended() -> None:
    queue = queue_of(job_of(1, k80=1.0, v100=1.0), job_of(3, k80=1.0, v100=1.0), k80=1, v100=1)
    queue.blindly({"job-000001": "v100", "job-000002": "k80"}, 0)
    assert queue.in_order() == [("job-000001", "v100"), ("job-000003", "k80")]


def test_agnostic_random_numbers_go_on_where_they_ended() -> None:
    """Which type is no longer offered is drawn: what is drawn in two computations is what is drawn in one."""
    jobs = [job_of(number, k80=1.0, p100=1.0, v100=1.0) for number in range(1, 9)]
    at_once = queue_of(*jobs, k80=3, p100=3, v100=3)
    drawn = at_once.blindly({}, 0)
    first = queue_of(*jobs[:1], k80=3, p100=3, v100=3)
    used = first.blindly({}, 0)
    assert 0 < used < drawn
    second = queue_of(*jobs, k80=3, p100=3, v100=3)
    assert second.blindly(dict(first.in_order()), used) == drawn
    assert second.in_order() == at_once.in_order()


def test_with_throughputs_a_job_gets_the_fastest_type_with_room() -> None:
    queue = queue_of(job_of(1, k80=1.0, v100=2.0), job_of(2, k80=1.0, v100=2.0), k80=1, v100=1)
    queue.by_speed()
    assert queue.in_order() == [("job-000001", "v100"), ("job-000002", "k80")]


def finished(*, compatible: bool) -> float:
    """Of a job that makes 163.8 steps in a round and has 327, beside one that keeps the rounds at 360 s."""
    jobs = [
        TraceJob(
            id=name,
            number=number,
            arrival_s=0.0,
            total_steps=steps,
            min_gpus=1,
            max_gpus=1,
            curves={"v100": Curve((speed,))},
        )
        for number, (name, steps, speed) in enumerate((("slow", 327.0, 0.455), ("long", 4_000.0, 1.0)))
    ]
    on = Cluster(tuple(make_nodes(2, type="v100")), {}, 0.0, 0.0, 0.0)
    found = simulate(jobs, on, "max_min_fairness", {"compatible": compatible})
    return float(2 * found["jct_s"]["mean"] - 4_000.0)


def test_a_job_makes_whole_steps_in_a_round() -> None:
    assert finished(compatible=False) == pytest.approx(327 / 0.455, abs=0.1)
    assert finished(compatible=True) == pytest.approx(720 + 1 / 0.455, abs=0.1)
