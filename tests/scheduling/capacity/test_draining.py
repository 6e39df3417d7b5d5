"""Nodes that are drained by a deadline: nobody new, who is through in time stays, the others leave in time."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scheduling.capacity.draining import MARGIN_S, expected_end, leaves_by
from scheduling.domain import Drain, Job, Move, Node, Plan, Snapshot, Window
from scheduling.engine.rounds import plan_round
from scheduling.lifecycle import State
from scheduling.policies import POLICIES, load_policy
from scheduling.policies.base import Policy
from tests.builders import make_curve, make_job, make_nodes, make_snapshot
from tests.cases import in_turn
from tests.scheduling.strategies import ONE_OF_EACH_KIND

every_policy = pytest.mark.parametrize("name", sorted(POLICIES))
each_kind = in_turn("name", ONE_OF_EACH_KIND)
NOW = 1000.0
HERE = (10, 11)
MOVABLE = (State.RUNNING, State.RUNNING_PROTECTED, State.LAUNCHING)


def load(name: str) -> Policy:
    return load_policy(name, {"n": 2} if name == "static_partition" else {})


def draining(deadline: float | None, text: str = "new fans") -> Node:
    return Node("old", "titan_xp", HERE, schedulable=False, drain=Drain(deadline, text))


def on_it(steps: float = 1000.0, **changes: Any) -> Job:
    """Two GPUs of the node at 1 step/s."""
    values = {"holds": HERE, "min_gpus": 2, "max_gpus": 2, "curve": make_curve(0.5, 1.0), "remaining_steps": steps}
    return make_job(**{**values, **changes})


def plan(name: str, *jobs: Job, deadline: float | None, elsewhere: int = 0, **changes: Any) -> Plan:
    nodes = (*make_nodes(*([elsewhere] if elsewhere else [])), draining(deadline))
    return plan_round(make_snapshot(*jobs, nodes=nodes, **changes), load(name))


def move_of(found: Plan, job: Job) -> Move | None:
    return next((move for move in found.moves if move.job_id == job.id), None)


@each_kind
def test_no_job_starts_on_it(name: str) -> None:
    job = make_job(gpus=1, remaining_steps=1.0)
    assert plan(name, job, deadline=NOW + 10_000).moves == ()


@each_kind
def test_a_job_that_is_through_before_the_deadline_is_left_alone_though_there_is_room(name: str) -> None:
    job = on_it(500.0)
    found = plan(name, job, deadline=NOW + 600, elsewhere=4)
    assert found.moves == ()
    assert found.reasons[job.id].token == "node_drained_ends"
    assert "by 1970-01-01 00:26 UTC (new fans)" in found.reasons[job.id].text


@each_kind
def test_a_job_that_is_not_moves_when_there_is_room(name: str) -> None:
    job = on_it(5_000.0)
    found = plan(name, job, deadline=NOW + 600, elsewhere=2)
    move = move_of(found, job)
    assert move is not None
    assert set(move.gpu_ids) == {0, 1}
    assert move.reason.token == "node_drained"


@each_kind
def test_without_room_it_stays_until_a_checkpoint_has_to_begin(name: str) -> None:
    job = on_it(5_000.0, checkpoint_s=20.0)
    waits = plan(name, job, deadline=NOW + 600)
    assert waits.moves == ()
    assert waits.reasons[job.id].token == "node_drained_waits"
    assert waits.next_wake_at is not None
    assert waits.next_wake_at <= leaves_by(job, NOW + 600) == NOW + 550
    due = plan(name, job, deadline=NOW + 50)
    move = move_of(due, job)
    assert move is not None
    assert (move.kind, move.reason.token) == ("preempt", "node_drained")
    assert "queues again" in move.reason.text


@each_kind
def test_protection_does_not_outlast_the_deadline(name: str) -> None:
    job = on_it(5_000.0, state=State.RUNNING_PROTECTED, protected_until=NOW + 900)
    assert plan(name, job, deadline=NOW + 600, elsewhere=2).moves == ()
    move = move_of(plan(name, job, deadline=NOW + 20, elsewhere=2), job)
    assert move is not None
    assert set(move.gpu_ids) == {0, 1}


@each_kind
def test_who_cannot_write_a_checkpoint_is_warned_and_then_stopped_for_good(name: str) -> None:
    job = on_it(5_000.0, restartable=False)
    before = plan(name, job, deadline=NOW + 1, elsewhere=2)
    assert before.moves == ()
    assert before.reasons[job.id].token == "node_drained_lost"
    move = move_of(plan(name, job, deadline=NOW, elsewhere=2), job)
    assert move is not None
    assert (move.kind, move.gpu_ids) == ("preempt", ())
    assert (move.reason.token, move.reason.detail["mode"]) == ("node_drained_stopped", "cancel")


@each_kind
def test_without_a_deadline_no_job_is_preempted(name: str) -> None:
    job, rigid = on_it(holds=(10,), min_gpus=1, max_gpus=1), on_it(holds=(11,), restartable=False)
    found = plan(name, job, rigid, deadline=None)
    assert found.moves == ()
    assert found.reasons[job.id].token == "node_drained_waits"


def test_an_unknown_end_counts_as_after_the_deadline() -> None:
    job = on_it(10.0, curve=make_curve(1.0, 1.0, source="trial"))
    assert plan("fifo_gang", job, deadline=NOW + 3_600).reasons[job.id].token == "node_drained_waits"
    limited = on_it(10.0, curve=make_curve(1.0, 1.0, source="trial"), time_limit_s=60.0)
    assert plan("fifo_gang", limited, deadline=NOW + 3_600).reasons[limited.id].token == "node_drained_ends"


def test_the_earliest_deadline_of_a_gang_counts() -> None:
    nodes = [
        Node(name, "titan_xp", (gpu,), schedulable=False, drain=Drain(deadline))
        for name, gpu, deadline in (("a", 10, None), ("b", 11, NOW + 100))
    ]
    job = on_it(5_000.0)
    found = plan_round(make_snapshot(job, nodes=nodes), load("fifo_gang"))
    assert found.next_wake_at == NOW + 100 - MARGIN_S


def test_a_gang_over_several_nodes_is_slower() -> None:
    job = on_it(500.0, curve=make_curve(0.5, 1.0, spread_factor=0.5))
    assert expected_end(job, NOW) == NOW + 500
    assert expected_end(job, NOW, spans=True) == NOW + 1_000


def test_windows_elsewhere_change_nothing() -> None:
    """Nodes are divided into pools then, and curves are those of pools."""
    job = on_it(500.0)
    window = Window("w", frozenset({"titan_xp-0"}), NOW + 60, NOW + 5_000)
    found = plan("fifo_gang", job, deadline=NOW + 600, elsewhere=4, windows=(window,))
    assert found.moves == ()
    assert found.reasons[job.id].token == "node_drained_ends"


def busy(seed: int) -> Snapshot:
    """A cluster some of whose nodes are drained, with jobs of all kinds on them, and others that wait."""
    rng = random.Random(seed)
    nodes = []
    for node in make_nodes(*rng.choices((1, 2, 4), k=5)):
        drain = rng.choice((None, Drain(), *(Drain(NOW + s) for s in (-5.0, 0.0, 10.0, 100.0, 5_000.0))))
        nodes.append(Node(node.name, node.type, node.gpu_ids, schedulable=drain is None, drain=drain))
    jobs = []
    for number, node in enumerate(nodes, 1):
        if rng.random() < 0.8:
            jobs.append(_some_job(rng, number, holds=node.gpu_ids, state=rng.choice(MOVABLE)))
    jobs += [_some_job(rng, number) for number in range(10, 16)]
    return make_snapshot(*jobs, nodes=nodes)


def _some_job(rng: random.Random, number: int, **more: Any) -> Job:
    return make_job(
        number=number,
        remaining_steps=rng.choice((5.0, 50.0, 1e5)),
        restartable=rng.random() < 0.7,
        protected_until=NOW + 100 if more.get("state") is State.RUNNING_PROTECTED else None,
        **more,
    )


def check(snapshot: Snapshot, name: str) -> None:
    found = {move.job_id: move for move in plan_round(snapshot, load(name)).moves}
    drain_of = {gpu: node.drain for node in snapshot.nodes for gpu in node.gpu_ids}
    for job in snapshot.jobs:
        move = found.get(job.id)
        drains = [drain for gpu in job.gpu_ids if (drain := drain_of[gpu])]
        assert move is None or not any(drain_of[gpu] for gpu in set(move.gpu_ids) - set(job.gpu_ids))
        for deadline in [drain.deadline for drain in drains if drain.deadline is not None]:
            ends = deadline > NOW and expected_end(job, NOW) <= deadline
            if ends:
                assert move is None
            elif deadline <= NOW or (job.restartable and leaves_by(job, deadline) <= NOW):
                assert move is not None
                assert not set(move.gpu_ids) & set(job.gpu_ids)
            elif not job.restartable:
                assert move is None
            assert move is None or (move.reason.detail.get("mode") == "cancel") == (not job.restartable)


@every_policy
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 2**32))
def test_no_job_comes_and_everybody_leaves_in_time(name: str, seed: int) -> None:
    check(busy(seed), name)
