"""Recorded decisions: replayed to the same plan, stored small, dropped oldest first."""

from dataclasses import replace
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone

from portal.jobs.models import Decision, DecisionBase
from portal.snapshot import decisions
from portal.snapshot.take import take_snapshot
from scheduling.domain.usage_history import ResourceHistory
from tests.builders import make_job, make_snapshot
from tests.portal.world import World

pytestmark = pytest.mark.django_db


@pytest.fixture
def world() -> World:
    world = World({"a": 4, "b": 2})
    for curve in ("fast", "slow"):
        world.train(world.submit(curve))
    return world


@pytest.mark.parametrize("policy", ["f_scheduling", "fifo_gang"])
def test_every_recorded_round_is_replayed_to_the_same_plan(policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decisions, "EMPTY_EVERY_S", 0)
    world = World({"a": 4, "b": 2}, policy)
    for n in range(6):
        world.train(world.submit("slow" if n % 2 else "fast", priority=n))
    assert Decision.objects.count() == 6
    for decision in Decision.objects.all():
        assert decisions.same_plan(decisions.replay(decision), decision)


def test_another_policy_can_be_asked(world: World) -> None:
    decision = Decision.objects.latest("round")
    plan = decisions.replay(decision, "fifo_gang")
    assert not decisions.same_plan(plan, decision)


def test_the_snapshot_comes_back_as_it_was(world: World) -> None:
    view = take_snapshot(world.cluster, timezone.now())
    world.submit("fast")
    view = take_snapshot(world.cluster, timezone.now())
    decision = Decision.objects.latest("round")
    assert decisions.snapshot_of(decision).nodes == view.snapshot.nodes
    stored = decisions.snapshot_from_text(decisions.snapshot_text(view.snapshot))
    assert sorted(stored.jobs, key=lambda j: j.number) == sorted(view.snapshot.jobs, key=lambda j: j.number)


def test_histories_of_resources_come_back_as_they_were() -> None:
    known = ResourceHistory(5.0, (0.1, 0.9), (0.2, 0.3), (0.0, 0.5), (0.0, 0.0))
    snapshot = make_snapshot(make_job(gpus=1, gpu_milli=250, history=known), make_job(gpus=1))
    assert [job.history for job in decisions.snapshot_from_text(decisions.snapshot_text(snapshot)).jobs] == [
        known,
        None,
    ]


def test_rounds_share_a_base_and_store_their_difference(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decisions, "EMPTY_EVERY_S", 0)
    for _ in range(20):
        world.submit("fast", steps=10**6)
    world.round()
    base = Decision.objects.latest("round").base
    for job in [world.submit("slow") for _ in range(3)]:
        world.train(job)
    later = Decision.objects.filter(base=base).order_by("-round")
    assert later.count() == 4
    assert len(bytes(later[0].snapshot)) < base.size_bytes / 2


def test_a_quiet_cluster_is_sampled(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.round()
    kept = Decision.objects.count()
    world.round()
    assert Decision.objects.count() == kept
    monkeypatch.setattr(decisions, "EMPTY_EVERY_S", 0)
    world.round()
    assert Decision.objects.count() == kept + 1


def test_the_oldest_are_dropped_and_with_them_bases_nobody_needs(world: World, settings: Any) -> None:
    settings.EVENKEEL_KEEP = replace(settings.EVENKEEL_KEEP, decisions_bytes=1)
    decisions.prune()
    assert not Decision.objects.exists()
    assert not DecisionBase.objects.exists()


def test_the_command_says_whether_the_plan_is_the_same(world: World) -> None:
    out = StringIO()
    call_command("replay", str(Decision.objects.latest("round").round), stdout=out)
    assert "the same plan" in out.getvalue()
    with pytest.raises(CommandError, match="is not recorded"):
        call_command("replay", "999999")
    with pytest.raises(CommandError, match="no_such_policy"):
        call_command("replay", str(Decision.objects.latest("round").round), "--policy", "no_such_policy")
