"""Between the ends of rounds of fractions of time, those that wait and what is idle give the plan of the whole."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings

from scheduling.domain import Curve
from scheduling.policies import load_policy
from scheduling.simulator.engine import Engine
from scheduling.simulator.inputs.trace import Cluster, TraceJob
from scheduling.simulator.outcome import Options, Outcome
from scheduling.simulator.snapshot import Whole
from tests.builders import make_nodes
from tests.scheduling.simulator.test_simulator_excerpt import cases

#: Of those that rest: with and without filling, looking at steps or not.
RESTING = ("max_min_fairness", "finish_time_fairness", "min_cost", "isolated", "shortest_job_first")
#: Under these whoever holds GPUs keeps them to the end.
LASTING = ("static_partition", "multifactor")


def simulate(name: str, jobs: list[TraceJob], cluster: Cluster, *, whole: bool) -> Outcome:
    rounds = {} if name in LASTING else {"round_seconds": 100.0, "recompute_seconds": 250.0}
    policy = load_policy(name, rounds)
    engine = Engine(jobs, cluster, policy, options=Options(seed=3, keep_holds=True))
    if whole:
        engine.sight = Whole(engine)
    return engine.run()


@pytest.mark.parametrize("name", [*RESTING, *LASTING])
@settings(max_examples=10, deadline=None)
@given(case=cases())
def test_an_excerpt_between_rounds_gives_the_plan_of_the_whole(
    name: str, case: tuple[list[TraceJob], Cluster, str]
) -> None:
    jobs, cluster, _ = case
    quick, whole = (simulate(name, jobs, cluster, whole=whole) for whole in (False, True))
    assert quick.holds == whole.holds
    assert [run.finished_at for run in quick.runs] == [run.finished_at for run in whole.runs]


def test_between_rounds_nothing_runs_that_could_start_no_job() -> None:
    curves = {"titan_xp": Curve((1.0,))}
    jobs = [TraceJob(str(n), n, 4.0 * n, 1000.0, curves, max_gpus=1) for n in range(1, 21)]
    cluster = Cluster(make_nodes(2), {}, 10.0, 4.0, 1.0)
    quick, whole = (simulate("max_min_fairness", jobs, cluster, whole=whole) for whole in (False, True))
    assert whole.rounds >= quick.rounds + 18  # an arrival each


FAST_AND_SLOW = tuple(replace(node, type=kind) for node, kind in zip(make_nodes(1, 1), ("fast", "slow"), strict=True))
BOTH = {"fast": Curve((2.0,)), "slow": Curve((1.0,))}
FAST_ONLY = {"fast": Curve((2.0,))}


def train(*jobs: tuple[float, float, dict[str, Curve]], launch_s: float, on: int = 0) -> list[list[tuple[int, float]]]:
    """(job, since) of what was held on one GPU (0: the fast one) between rounds at rest and with everything looked at;
    `jobs`: (arrival, steps, curves)."""
    listed = [TraceJob(str(n), n, at, steps, curves, max_gpus=1) for n, (at, steps, curves) in enumerate(jobs, 1)]
    cluster = Cluster(FAST_AND_SLOW, {}, launch_s, 4.0, 1.0)
    outcomes = [simulate("max_min_fairness", listed, cluster, whole=whole) for whole in (False, True)]
    mine = FAST_AND_SLOW[on].gpu_ids
    return [[(job, since) for job, gpus, since, _ in one.holds if gpus == mine] for one in outcomes]


def test_the_next_round_ends_though_all_are_on_their_way_at_the_end_of_this() -> None:
    # The second launches at 100 s, where the first round ends; the third can have nothing but what that has.
    quick, whole = train((0.0, 150.0, BOTH), (95.0, 2000.0, BOTH), (120.0, 60.0, FAST_ONLY), launch_s=10.0)
    assert (3, 705.0) in whole
    assert quick == whole


def test_a_round_ends_though_the_job_is_gone_whose_protection_was_to_end_with_it() -> None:
    # The third is protected from 150 s until 300 s, where the third round ends, and is through at 255 s.
    quick, _ = train((0.0, 99.0, FAST_ONLY), (0.0, 2000.0, BOTH), (100.0, 210.0, FAST_ONLY), launch_s=50.0)
    assert quick == [(1, 0.0), (3, 100.0), (2, 305.0)]


def test_what_a_moved_job_leaves_is_given_out_at_once() -> None:
    # At 500 s, a round's end, the second moves to the fast GPU; it has left the slow one at 505 s.
    jobs = (0.0, 900.0, FAST_ONLY), (0.0, 9000.0, BOTH), (502.0, 100.0, {"slow": Curve((1.0,))})
    for held in train(*jobs, launch_s=10.0, on=1):
        assert held == [(2, 0.0), (3, 505.0)]


def test_an_order_that_changes_with_time_starts_a_job_that_had_no_luck_before() -> None:
    # The fifth fits nowhere. At its arrival the first, which waits longest, has come before the eleventh, for which the
    # GPUs of `b` were kept until then; so the tenth may start.
    alike = [TraceJob(str(n), n, 0.0, 1.0, {"a": Curve((1.0,))}) for n in (2, 3, 7, 8, 9)]
    jobs = [
        *alike,
        TraceJob("1", 1, 80.0, 1.0, {"a": Curve((0.0, 1.0))}),
        TraceJob("4", 4, 0.0, 123.0, {"a": Curve((0.5,))}),
        TraceJob("5", 5, 265.0, 1.0, {"a": Curve((1.0,)), "b": Curve((1.0,))}, min_gpus=6),
        TraceJob("6", 6, 5.0, 126.0, {"b": Curve((0.0, 0.5))}),
        TraceJob("10", 10, 140.0, 64.0, {"b": Curve((0.5,))}),
        TraceJob("11", 11, 85.0, 1.0, {"b": Curve((1.0,))}, min_gpus=7, priority=1),
    ]
    sizes = (("a", 2), ("b", 2), ("b", 5))
    nodes = tuple(
        replace(node, type=kind) for node, (kind, _) in zip(make_nodes(*(n for _, n in sizes)), sizes, strict=True)
    )
    cluster = Cluster(nodes, {}, 10.0, 4.0, 1.0)
    quick, whole = (simulate("multifactor", jobs, cluster, whole=whole) for whole in (False, True))
    assert (10, 265.0) in [(job, since) for job, _, since, _ in whole.holds]
    assert quick.holds == whole.holds
