"""Between the ends of rounds of fractions of time, those that wait and what is idle give the plan of the whole."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from scheduling.domain import Curve
from scheduling.policies import load_policy
from scheduling.simulator.engine import Engine
from scheduling.simulator.outcome import Options, Outcome
from scheduling.simulator.sight import Whole
from scheduling.simulator.trace import Cluster, TraceJob
from tests.builders import make_nodes
from tests.scheduling.test_simulator_excerpt import cases

#: Of those that rest: with and without filling, looking at steps or not.
RESTING = ("max_min_fairness", "finish_time_fairness", "min_cost", "isolated", "shortest_job_first")


def simulate(name: str, jobs: list[TraceJob], cluster: Cluster, *, whole: bool) -> Outcome:
    policy = load_policy(name, {"round_seconds": 100.0, "recompute_seconds": 250.0})
    engine = Engine(jobs, cluster, policy, options=Options(seed=3, keep_holds=True))
    if whole:
        engine.sight = Whole(engine)
    return engine.run()


@pytest.mark.parametrize("name", RESTING)
@settings(max_examples=10, deadline=None)
@given(case=cases())
def test_an_excerpt_between_rounds_gives_the_plan_of_the_whole(
    name: str, case: tuple[list[TraceJob], Cluster, str]
) -> None:
    jobs, cluster, _ = case
    quick, whole = (simulate(name, jobs, cluster, whole=whole) for whole in (False, True))
    assert quick.holds == whole.holds
    assert [run.finished_at for run in quick.runs] == [run.finished_at for run in whole.runs]


def test_between_rounds_nothing_runs_that_could_start_nobody() -> None:
    curves = {"titan_xp": Curve((1.0,))}
    jobs = [TraceJob(str(n), n, 4.0 * n, 1000.0, curves, max_gpus=1) for n in range(1, 21)]
    cluster = Cluster(make_nodes(2), {}, 10.0, 4.0, 1.0)
    quick, whole = (simulate("max_min_fairness", jobs, cluster, whole=whole) for whole in (False, True))
    assert whole.rounds >= quick.rounds + 18  # an arrival each
