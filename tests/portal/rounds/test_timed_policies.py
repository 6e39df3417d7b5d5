"""Policies that answer with fractions of time, live: the rounds' memory travels through the database."""

from __future__ import annotations

from datetime import timedelta

import pytest

from portal.cluster import policy
from portal.jobs.models import Decision
from scheduling.lifecycle import State
from tests.portal.world import World, check_invariants

pytestmark = pytest.mark.django_db


@pytest.fixture
def world() -> World:
    world = World({"a": 1}, "max_min_fairness")
    policy.set_policy(actor=None, cluster=world.cluster, name="max_min_fairness", parameters={"round_seconds": 60})
    return world


def pass_time(world: World, seconds: float) -> None:
    """What the rounds remember becomes older by so much."""
    world.cluster.refresh_from_db()
    memory = world.cluster.policy_memory["time_sharing"]
    for name in ("computed_at", "round_end", "at"):
        memory[name] -= seconds
    memory["began"] = {job: at - seconds for job, at in memory["began"].items()}
    world.cluster.save(update_fields=["policy_memory"])


def test_two_jobs_take_turns_at_the_round_s_end(world: World) -> None:
    one, two = world.submit(), world.submit()
    world.train(one)
    world.round()
    assert world.state(one) is State.RUNNING
    assert world.run(two).reason_token == "next_round"
    pass_time(world, 61)
    world.round()
    assert world.state(one) is State.CHECKPOINTING
    world.checkpoint(one, 5, "request")
    world.gone(one)
    world.round()
    assert (world.state(one), world.state(two)) == (State.WAITING_FOR_RESOURCE, State.LAUNCHING)
    check_invariants(world)


def test_the_cluster_is_woken_at_the_round_s_end(world: World) -> None:
    world.train(world.submit())
    world.round()
    world.cluster.refresh_from_db()
    assert world.cluster.last_round_at is not None
    assert world.cluster.next_wake_at is not None
    assert world.cluster.next_wake_at - world.cluster.last_round_at <= timedelta(seconds=60)


def test_another_policy_starts_with_fractions_of_its_own(world: World) -> None:
    world.train(world.submit())
    world.round()
    policy.set_policy(actor=None, cluster=world.cluster, name="min_makespan", parameters={})
    plan = world.round()
    assert plan is not None
    assert "objective" in plan.figures
    assert Decision.objects.exists()
