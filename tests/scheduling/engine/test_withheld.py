"""Nodes that get no work until their check has passed: nobody starts there, and whoever is there stays as it is."""

from __future__ import annotations

import pytest

from scheduling.domain import Drain, Node
from scheduling.engine.rounds import plan_round
from scheduling.lifecycle import State
from tests.builders import make_job, make_nodes, make_snapshot
from tests.scheduling.capacity.test_draining import HERE, load, move_of, on_it
from tests.scheduling.strategies import ONE_OF_EACH_KIND

each_kind = pytest.mark.parametrize("name", ONE_OF_EACH_KIND)
CHECKED = Node("old", "titan_xp", HERE, schedulable=False, withheld="being checked")


@each_kind
def test_no_job_starts_there_and_a_job_that_waits_is_told(name: str) -> None:
    job = make_job(gpus=1)
    found = plan_round(make_snapshot(job, nodes=(CHECKED,)), load(name))
    assert found.moves == ()
    assert "old (being checked)" in found.reasons[job.id].text


@each_kind
def test_who_trains_there_stays_though_there_is_room_elsewhere(name: str) -> None:
    job = on_it()
    found = plan_round(make_snapshot(job, nodes=(*make_nodes(4), CHECKED)), load(name))
    assert found.moves == ()
    assert found.reasons[job.id].token == "node_withheld"
    assert "old (being checked)" in found.reasons[job.id].text


def test_whose_gang_is_there_in_part_stays_too() -> None:
    job = on_it(holds=(0, HERE[0]))
    found = plan_round(make_snapshot(job, nodes=(*make_nodes(4), CHECKED)), load("f_scheduling"))
    assert found.moves == ()


def test_what_was_only_assigned_there_starts_elsewhere() -> None:
    job = on_it(state=State.STANDBY)
    found = plan_round(make_snapshot(job, nodes=(*make_nodes(4), CHECKED)), load("fifo_gang"))
    move = move_of(found, job)
    assert move is not None
    assert not set(move.gpu_ids) & set(HERE)


def test_a_drain_comes_before_a_check() -> None:
    both = Node("old", "titan_xp", HERE, schedulable=False, withheld="being checked", drain=Drain(None, "new fans"))
    job = on_it()
    found = plan_round(make_snapshot(job, nodes=(*make_nodes(4), both)), load("fifo_gang"))
    move = move_of(found, job)
    assert move is not None
    assert found.reasons[job.id].token == "node_drained"
