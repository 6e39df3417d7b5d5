"""Solvers are limited by steps everywhere, and by the clock in live rounds only: what is simulated ends the same on
every machine."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import highspy
import numpy as np
import pytest

from scheduling.domain import Snapshot
from scheduling.engine.rounds import plan_round
from scheduling.errors import SolverError
from scheduling.policies import load_policy
from scheduling.policies.elastic import f_scheduling_exact, variance_program
from scheduling.policies.packing import genetic
from scheduling.simulator import Options
from scheduling.simulator.inputs.trace import Cluster
from scheduling.simulator.readers import own
from scheduling.simulator.readers.jobs import Context
from scheduling.simulator.sweeps import Trial, run_trial
from scheduling.solvers import lp
from scheduling.solvers.budget import CLOCK
from tests.builders import make_curve, make_job, make_nodes, make_snapshot

#: Those whose answer a limit in seconds could change.
LIMITED = [
    ("max_min_fairness", {}),
    ("finish_time_fairness", {"solver": "highs"}),
    ("min_cost", {}),
    ("shortest_remaining_time", {"review_seconds": 1_800.0}),
    ("f_scheduling_exact", {"time_limit_s": 0.5}),
    ("packing_exact", {"time_limit_s": 0.5}),
]


@pytest.fixture
def slow() -> Iterator[Callable[[], None]]:
    """Call it, and a second of work takes an hour and more."""
    with pytest.MonkeyPatch.context() as patch:
        yield lambda: _slow_down(patch)


def _slow_down(patch: pytest.MonkeyPatch) -> None:
    set_option = highspy.Highs.setOptionValue

    def scaled(self: Any, name: str, value: Any) -> Any:
        slower = name == "time_limit" and value < highspy.kHighsInf
        return set_option(self, name, self.getRunTime() + 1e-9 if slower else value)

    ticks: Iterator[float] = itertools.count(0.0, 3_600.0)
    patch.setattr(highspy.Highs, "setOptionValue", scaled)
    for module in (variance_program, f_scheduling_exact, genetic):
        patch.setattr(module, "time", SimpleNamespace(monotonic=lambda: next(ticks)))


def entry(number: int) -> dict[str, Any]:
    """One of 1 to 6 GPUs; two come at a time."""
    speeds = {str(n): (1.0 + number % 5) * n ** (0.5 + number % 4 / 10) for n in range(1, 7)}
    few = {"min_gpus": 1 + number % 3, "max_gpus": 6}
    kinds = {"v100": {"steps_per_s": speeds}}
    return {"id": str(number), "arrival_s": 300.0 * (number // 2), "total_steps": 5_000, "throughputs": kinds, **few}


def trial(policy: str, parameters: dict[str, Any]) -> Trial:
    jobs = own.parse({"jobs": [entry(number) for number in range(14)]}, "trace", Context())
    cluster = Cluster(nodes=make_nodes(4, 4, type="v100"), price_per_gpu_hour={"v100": 2.0})
    return Trial("one", jobs, cluster, policy, parameters, Options(3, keep_holds=True, coalesce_s=60.0))


def figures(policy: str, parameters: dict[str, Any]) -> str:
    done = run_trial(trial(policy, parameters))
    assert done.error == ""
    return json.dumps([{**done.result, "wall_s": 0}, done.detail])


@pytest.mark.parametrize(("policy", "parameters"), LIMITED)
def test_a_trial_on_a_slow_machine_comes_to_the_same_bytes(
    policy: str, parameters: dict[str, Any], slow: Callable[[], None]
) -> None:
    at_full_speed = figures(policy, parameters)
    slow()
    assert figures(policy, parameters) == at_full_speed


def crowd(clock: bool) -> Snapshot:
    jobs = [make_job(number=n, curve=make_curve(1.0, 1.0 + n / 10), gpus=1 + n % 2) for n in range(1, 9)]
    return replace(make_snapshot(*jobs, nodes=6), settings={CLOCK: clock})


@pytest.mark.parametrize("policy", ["max_min_fairness", "f_scheduling_exact", "packing_exact"])
def test_a_live_round_on_a_slow_machine_falls_back_and_says_so(policy: str, slow: Callable[[], None]) -> None:
    slow()
    chosen = load_policy(policy, {})
    assert plan_round(crowd(True), chosen).figures["solver_failed"] == 1.0
    assert "solver_failed" not in plan_round(crowd(False), chosen).figures


def test_a_genetic_search_goes_through_all_its_generations_where_only_steps_count(slow: Callable[[], None]) -> None:
    jobs = [make_job(number=n, gpus=1, gpu_milli=(300, 450, 600)[n % 3]) for n in range(1, 25)]
    snapshot, chosen = make_snapshot(*jobs, nodes=make_nodes(2, 2, 2)), load_policy("genetic", {})

    def moves(clock: bool) -> list[tuple[str, tuple[int, ...]]]:
        plan = plan_round(replace(snapshot, settings={CLOCK: clock}), chosen)
        return [(move.job_id, move.gpu_ids) for move in plan.moves]

    at_full_speed = moves(False)
    slow()
    assert moves(False) == at_full_speed
    assert moves(True) != at_full_speed


@pytest.mark.parametrize(
    ("policy", "parameters"), [("f_scheduling_exact", {"most_programs": 1}), ("max_min_fairness", {})]
)
def test_what_steps_do_not_suffice_for_is_counted_in_the_result(
    policy: str, parameters: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    if policy == "max_min_fairness":
        monkeypatch.setattr(lp, "iterations", lambda rows, columns: 0)
    done = run_trial(trial(policy, parameters | ({"v_bound": 0.01} if policy == "f_scheduling_exact" else {})))
    assert 0 < done.result["fallbacks"] <= done.result["rounds"]
    assert done.result["finished"] == 14


@pytest.mark.parametrize("engine", ["highs", "cbc"])
def test_a_linear_program_ends_at_its_limit_of_steps(engine: lp.Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = np.random.default_rng(0)
    program = lp.LinearProgram(numbers.random(200), maximise=True, bounds=np.ones(200))
    for _ in range(100):
        columns = np.sort(numbers.choice(200, 20, replace=False))
        program.add_row(columns, numbers.random(20) + 0.1, -lp.INFINITY, 3.0)
    best = program.solve(engine, float("inf")).objective
    monkeypatch.setattr(lp, "iterations", lambda rows, columns: 3)
    program.set_costs(numbers.random(200))
    with pytest.raises(SolverError):
        program.solve(engine, float("inf"))
    monkeypatch.undo()
    assert best > 0


def test_the_search_for_integers_ends_at_its_limit_of_nodes() -> None:
    """No plan is proven best at the root of this one."""
    jobs = [make_job(number=n, curve=make_curve(*(n**0.5 * k**0.6 for k in range(1, 7)))) for n in range(1, 15)]
    snapshot = replace(make_snapshot(*jobs, nodes=31), settings={CLOCK: False})
    found = load_policy("f_scheduling_exact", {"v_bound": 0.003, "most_programs": 2}).allocate(snapshot)
    assert (found.figures["exact"], found.figures["solver_failed"]) == (0.0, 1.0)
