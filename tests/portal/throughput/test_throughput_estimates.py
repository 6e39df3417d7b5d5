"""Estimates live: they stand until measured, say what they are, and pairs are worked out for policies that pack."""

from __future__ import annotations

from typing import Any

import pytest
from django.utils import timezone

from portal.cluster import policy
from portal.jobs.models import Decision, Job, ModelType
from portal.readmodels.cluster.catalogue import describe_curve
from portal.snapshot import decisions
from portal.snapshot.take import take_snapshot
from portal.throughput import profiles
from scheduling.throughput.curves import Number
from tests.portal.world import World

pytestmark = pytest.mark.django_db

TYPES = {"v100": 4, "k80": 4}
FAST = Number(10.0, "measured", 1.0, 5)


def job_of(name: str = "", **changes: Any) -> Job:
    program = ModelType(pk=1, name=name, title=name, argv=["x"], default_batch_size=64) if name else None
    return Job(model_type=program, batch_size=64, spec={}, min_gpus=1, **changes)


def measured_on(job: Job, *kinds: str) -> dict[tuple[str, int, str], dict[int, Number]]:
    return {(profiles.workload_of(job), 64, kind): {1: FAST} for kind in kinds}


def test_a_job_is_estimated_where_it_was_never_measured() -> None:
    job = job_of()
    found = profiles.profiles_of(job, TYPES, measured_on(job, "v100"))
    assert (found["v100"].curve.source, found["k80"].curve.source) == ("measured", "estimated")
    assert 0 < found["k80"].curve.at(1) < found["v100"].curve.at(1)
    (first, *_) = describe_curve(found["k80"], timezone.now())["points"]
    assert first["source"] == "estimated"
    assert first["relative_error"] > 0
    assert first["age_s"] is None


def test_a_measurement_takes_the_estimates_place() -> None:
    job = job_of()
    found = profiles.profiles_of(job, TYPES, measured_on(job, "v100", "k80"))
    assert {profile.curve.source for profile in found.values()} == {"measured"}
    assert found["k80"].numbers[1] == FAST


def test_of_a_job_that_nobody_knows_nothing_is_made_up() -> None:
    found = profiles.profiles_of(job_of(), TYPES, {})
    assert {profile.curve.source for profile in found.values()} == {"trial"}


def test_types_that_a_job_does_not_allow_are_not_estimated() -> None:
    job = job_of(accelerator_types=["v100"])
    assert set(profiles.profiles_of(job, TYPES, measured_on(job, "v100"))) == {"v100"}


def test_a_catalogue_program_is_estimated_on_types_outside_its_catalogue_entry() -> None:
    found = profiles.profiles_of(job_of("resnet50"), {"titan_xp": 6, "p100": 4}, {})
    assert (found["titan_xp"].curve.source, found["p100"].curve.source) == ("catalogue", "estimated")
    assert found["titan_xp"].curve.spread_factor == 0.85


def test_a_program_named_after_a_published_kind_has_its_numbers() -> None:
    (curve,) = (p.curve for p in profiles.profiles_of(job_of("resnet-18-16"), {"v100": 8}, {}).values())
    assert curve.source == "catalogue"
    assert curve.at(1) == pytest.approx(32.3534)
    assert curve.spread_at(8) < 1.0


def test_pairs_are_known_only_where_the_policy_packs() -> None:
    world = World({"a": 2}, "max_min_fairness")
    world.submit("fast")
    world.submit("slow")
    assert take_snapshot(world.cluster, timezone.now()).snapshot.pairs == {}
    policy.set_policy(actor=None, cluster=world.cluster, name="max_min_fairness", parameters={"variant": "packed"})
    world.cluster.refresh_from_db()
    view = take_snapshot(world.cluster, timezone.now())
    assert len(view.snapshot.pairs) == 1
    assert all(speed > 0 for kinds in view.snapshot.pairs.values() for both in kinds.values() for speed in both)
    stored = decisions.snapshot_from_text(decisions.snapshot_text(view.snapshot))
    assert stored.pairs == view.snapshot.pairs


def test_a_packed_round_is_kept_and_replayed() -> None:
    world = World({"a": 1}, "gandiva")
    world.submit("fast")
    world.submit("slow")
    assert world.round() is not None
    decision = Decision.objects.latest("round")
    assert decisions.same_plan(decisions.replay(decision), decision)
