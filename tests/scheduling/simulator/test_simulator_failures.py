"""Nodes that fail in simulated time: what is lost, who goes on where, and who is given up."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from scheduling.domain import Node
from scheduling.lifecycle import State
from scheduling.policies import load_policy
from scheduling.simulator.inputs.trace import Cluster, TraceJob
from scheduling.simulator.outcome import Options
from tests.scheduling.simulator.test_simulator_exactly import GPU, Noting, Scripted, cluster, job, play

# Nodes that fail -------------------------------------------------------------------------------------------


def fail(engine: Noting, node: Node, at: float, repair_s: float) -> None:
    engine.at(at, lambda: engine.failures._fail(node, random.Random(1), 1e15, repair_s))


def failing(jobs: list[TraceJob], on: Cluster, at: float, repair_s: float = 30.0, node: int = 0) -> Noting:
    engine = Noting(jobs, on, load_policy("f_scheduling"), options=Options(keep_holds=True))
    fail(engine, on.nodes[node], at, repair_s)
    engine.run()
    return engine


def test_a_job_on_a_lost_node_goes_back_to_its_last_checkpoint_and_on_elsewhere_at_once() -> None:
    engine = failing([job(1, 0.0, 200.0, checkpoint_every_s=20.0)], cluster(1, 1), at=75.0, repair_s=1_000.0)
    assert engine.of(1)[3:] == [
        (10.0, "RUNNING_PROTECTED"),
        (40.0, "RUNNING"),
        (75.0, "CHECKPOINTING"),
        (75.0, "STOPPING"),
        (75.0, "STANDBY"),
        (75.0, "LAUNCHING"),
        (85.0, "RUNNING_PROTECTED"),
        (115.0, "RUNNING"),
        (225.0, "FINISHED"),  # 60 of the 65 steps were saved
    ]
    (run,) = engine.runs
    assert (run.lost_steps, run.lost_gpu_s, run.failures, run.restarts) == (5.0, 5.0, 1, 1)
    assert engine.outcome.holds == [(1, (0,), 0.0, 75.0), (1, (1,), 75.0, 225.0)]
    assert engine.outcome.meter.gpu_seconds == 65.0 + 140.0


def test_nodes_fail_at_times_that_follow_from_the_seed_and_their_names() -> None:
    on = cluster(1, reliability={GPU: (500.0, 20.0)})
    first_s = random.Random("7:failures:titan_xp-0").expovariate(1.0 / 500.0)
    engine = play([job(1, 0.0, 900.0, checkpoint_every_s=50.0)], on, load_policy("f_scheduling"), seed=7)
    at = next(at for at, state in engine.of(1) if state == "CHECKPOINTING")
    assert at == pytest.approx(first_s)
    assert engine.outcome.failures == engine.runs[0].failures > 0
    assert engine.of(1)[-1][1] == "FINISHED"
    spared = replace(on, reliability={"other": (1.0, 20.0)})
    assert play([job(1, 0.0, 900.0)], spared, load_policy("f_scheduling"), seed=7).outcome.failures == 0


def test_of_two_nodes_that_are_lost_after_each_other_each_costs_what_was_not_saved() -> None:
    engine = Noting([job(1, 0.0, 200.0, checkpoint_every_s=20.0)], cluster(1, 1, 1), load_policy("f_scheduling"))
    fail(engine, engine.cluster.nodes[0], 75.0, 1_000.0)
    fail(engine, engine.cluster.nodes[1], 200.0, 1_000.0)
    engine.run()
    (run,) = engine.runs
    assert (run.failures, run.restarts, run.lost_steps) == (2, 2, 5.0 + 15.0)
    assert run.finished_at == 200.0 + 10.0 + 40.0
    jobs = [job(1, 0.0, 1_000.0, 1.0, 2.0, max_gpus=2), job(2, 300.0, 50.0)]
    shrunk = Noting(jobs, cluster(2), load_policy("f_scheduling", {"v_bound": 0.5}))
    fail(shrunk, shrunk.cluster.nodes[0], 75.0, 10.0)
    shrunk.run()
    assert [at for at, state in shrunk.of(1) if state in ("CHECKPOINTING", "STOPPING")][:4] == [
        75.0,
        75.0,
        300.0,
        304.0,
    ]


@pytest.mark.parametrize(("own", "cluster_s", "lost"), [(20.0, 50.0, 5.0), (None, 50.0, 15.0), (None, None, 65.0)])
def test_checkpoints_are_as_far_apart_as_the_job_or_else_the_cluster_says(
    own: float | None, cluster_s: float | None, lost: float
) -> None:
    on = cluster(1, 1, checkpoint_every_s=cluster_s)
    engine = failing([job(1, 0.0, 200.0, checkpoint_every_s=own)], on, at=75.0)
    assert engine.runs[0].lost_steps == lost


def test_without_another_node_it_waits_for_the_repair() -> None:
    engine = failing([job(1, 0.0, 200.0)], cluster(1), at=75.0, repair_s=30.0)
    assert engine.of(1)[5:9] == [
        (75.0, "CHECKPOINTING"),
        (75.0, "STOPPING"),
        (75.0, "WAITING_FOR_RESOURCE"),
        (105.0, "STANDBY"),
    ]
    assert engine.outcome.end == 105.0 + 10.0 + 200.0
    assert engine.runs[0].lost_steps == 65.0
    again = failing([job(1, 0.0, 200.0)], cluster(1), at=5.0, repair_s=3_000.0)
    assert again.outcome.end == 3_005.0 + 10.0 + 200.0  # it had not trained, and is not given up meanwhile
    assert (again.runs[0].restarts, again.runs[0].failures) == (0, 1)


def test_while_a_node_is_down_no_job_is_given_up() -> None:
    """Every 10 s a round starts nobody, 300 times."""
    policy = Scripted(lambda snapshot, found: replace(found, next_wake_at=snapshot.now + 10.0))
    engine = Noting([job(1, 0.0, 50.0)], cluster(1), policy)
    fail(engine, engine.cluster.nodes[0], 5.0, 3_000.0)
    engine.run()
    assert engine.runs[0].finished_at == 3_005.0 + 10.0 + 50.0
    assert engine.outcome.rounds > 300


def test_what_is_checkpointed_when_it_is_stopped_is_saved() -> None:
    """It is shrunk at 100; its node is lost 50 s of training later."""
    jobs = [
        job(1, 0.0, 1_000.0, 1.0, 2.0, max_gpus=2, checkpoint_every_s=None),
        job(2, 100.0, 5_000.0),
    ]
    engine = Noting(jobs, cluster(2, 2), load_policy("f_scheduling", {"v_bound": 0.5}))
    engine.run()
    first = engine.runs[0]
    assert first.saved <= 1_000.0
    shrunk = Noting(jobs, cluster(2), load_policy("f_scheduling", {"v_bound": 0.5}), options=Options(keep_holds=True))
    fail(shrunk, shrunk.cluster.nodes[0], 165.0, 30.0)
    shrunk.run()
    assert shrunk.runs[0].lost_steps == 50.0  # of 180 + 50


def test_nothing_launches_on_a_node_that_is_down() -> None:
    """The second was to have the GPU that the first leaves when the node is lost."""
    jobs = [job(1, 0.0, 1_000.0, 1.0, 2.0, max_gpus=2), job(2, 100.0, 50.0)]
    engine = Noting(jobs, cluster(2), load_policy("f_scheduling", {"v_bound": 0.5}), options=Options(keep_holds=True))
    fail(engine, engine.cluster.nodes[0], 102.0, 500.0)
    engine.run()
    assert all(start >= 602.0 or start == 0.0 for _, _, start, _ in engine.outcome.holds)
    assert (100.0, "STANDBY") in engine.of(2)
    assert (102.0, "WAITING_FOR_RESOURCE") in engine.of(2)
    assert all(run.state is State.FINISHED for run in engine.runs)
