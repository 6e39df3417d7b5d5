"""Throughput measured beside a neighbour: what is kept of it, and where it takes the place of estimates."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from portal.cluster import policy
from portal.jobs.access import described_jobs
from portal.jobs.models import Hold, Job, ModelType, PairSample, Run
from portal.readmodels.jobs.detail import describe_detail
from portal.snapshot.take import take_snapshot
from portal.throughput.pairs import pairs_for
from scheduling.policies.time_shares.programs.groups import colocated
from scheduling.throughput.colocation import pairs_of
from tests.portal.world import World, check_invariants

pytestmark = pytest.mark.django_db
LONG_AGO = timedelta(hours=1)


@pytest.fixture
def world() -> World:
    for name in ("net", "other"):
        ModelType.objects.create(name=name, title=name, argv=["python", "net.py"])
    return World({"a": 1}, emulated=False)


def half(world: World, name: str = "net", **keys: Any) -> Job:
    return world.submit(**({"command": None, "model_type": name, "gpus": 0.5} | keys))


def train_together(world: World, *jobs: Job) -> None:
    """They have done so for an hour."""
    world.round()
    for job in jobs:
        world.ready(job)
    Run.objects.update(ready_at=timezone.now() - LONG_AGO)
    Hold.objects.filter(during__upper_inf=True).update(during=(timezone.now() - LONG_AGO, None))


def report(world: World, job: Job, steps_per_s: float, *, reports: int = 12, first: int = 1) -> None:
    began = timezone.now() - timedelta(minutes=10)
    metrics = [
        {"step": step, "at": began.timestamp() + (step - first) / steps_per_s, "loss": 0.5}
        for step in range(first, first + reports)
    ]
    world.report(job, step=first + reports, metrics=metrics)


def sharing(job: Job) -> Any:
    return describe_detail(described_jobs().get(pk=job.pk), timezone.now())["sharing"]


def test_what_two_make_beside_each_other_is_kept(world: World) -> None:
    one, other = half(world), half(world, "other")
    train_together(world, one, other)
    report(world, one, 7.0)
    report(world, other, 4.0)
    kept = {(row.workload, row.beside_workload): row for row in PairSample.objects.all()}
    assert set(kept) == {("net", "other"), ("other", "net")}
    row = kept["net", "other"]
    assert (row.share_percent, row.beside_share_percent, row.accelerator_type) == (50, 50, "k1")
    assert row.steps_per_s == pytest.approx(7.0, rel=1e-3)
    assert row.samples >= 3
    check_invariants(world)


def test_alone_or_beside_two_is_no_pair(world: World) -> None:
    one = half(world, gpus=0.3)
    train_together(world, one)
    report(world, one, 7.0)
    assert not PairSample.objects.exists()
    others = [half(world, "other", gpus=0.3) for _ in range(2)]
    train_together(world, *others)
    report(world, one, 7.0, first=20)
    assert not PairSample.objects.exists()


def test_what_was_made_before_they_were_together_does_not_count(world: World) -> None:
    one, other = half(world), half(world, "other")
    train_together(world, one, other)
    Run.objects.filter(job=other).update(ready_at=timezone.now())
    report(world, one, 7.0)
    assert not PairSample.objects.exists()


def test_what_was_made_while_a_third_was_there_does_not_count(world: World) -> None:
    one, other, third = half(world, gpus=0.4), half(world, "other", gpus=0.3), half(world, gpus=0.3)
    train_together(world, one, other, third)
    world.gone(third, "done", step=1000)
    report(world, one, 7.0)
    assert not PairSample.objects.exists()


def test_the_job_page_goes_by_what_was_measured_beside_such_a_neighbour(world: World) -> None:
    one, other = half(world), half(world, "other")
    train_together(world, one, other)
    before = sharing(one)
    assert (before["expected_slowdown"], before["expected_source"]) == (2.0, "share")
    report(world, one, 8.0)
    report(world, other, 4.0)
    said = sharing(one)
    assert (said["expected_slowdown"], said["expected_source"]) == (pytest.approx(1.25), "pair")
    (neighbour,) = said["neighbours"]
    assert neighbour["slowdown"] == pytest.approx(1.25)
    assert neighbour["samples"] >= 3
    for job in (one, other):
        world.gone(job, "done", step=1000)
    later, beside = half(world), half(world, "other")
    train_together(world, later, beside)
    assert (sharing(later)["expected_slowdown"], sharing(later)["expected_source"]) == (pytest.approx(1.25), "pair")
    assert sharing(later)["measured_slowdown"] is None


def measured_snapshot(world: World) -> Any:
    policy.set_policy(actor=None, cluster=world.cluster, name="max_sum_throughput", parameters={"variant": "packed"})
    world.cluster.refresh_from_db()
    return take_snapshot(world.cluster, timezone.now()).snapshot


def test_policies_that_pack_read_the_measured_pair(world: World) -> None:
    one, other = half(world), half(world, "other")
    train_together(world, one, other)
    wholes = [half(world, name, gpus=1) for name in ("net", "other")]
    estimated = colocated(measured_snapshot(world), "net", "other", 1)["k1"]
    report(world, one, 8.0)
    report(world, other, 3.0)
    measured = colocated(measured_snapshot(world), "net", "other", 1)["k1"]
    assert measured == pytest.approx((8.0, 3.0), rel=1e-3)
    assert estimated != pytest.approx(measured, rel=1e-3)
    assert len(wholes) == 2


def test_a_pair_measured_from_one_side_only_is_none(world: World) -> None:
    one, other = half(world), half(world, "other")
    train_together(world, one, other)
    report(world, one, 8.0)
    jobs = list(measured_snapshot(world).jobs)
    assert pairs_for(jobs, ["k1"], world.cluster.pk)["net", "other", 1]["k1"] != pytest.approx((8.0, 3.0), rel=1e-3)
    assert PairSample.objects.get().workload == "net"


def test_without_measurements_pairs_are_the_estimates(world: World) -> None:
    half(world)
    half(world, "other")
    jobs = list(measured_snapshot(world).jobs)
    assert pairs_for(jobs, ["k1"], world.cluster.pk) == pairs_of(jobs, ["k1"])


def test_emulated_devices_say_nothing_of_real_ones(world: World, settings: Any) -> None:
    one, other = half(world), half(world, "other")
    train_together(world, one, other)
    Run.objects.update(emulated=True)
    report(world, one, 8.0)
    report(world, other, 3.0)
    assert sharing(one)["expected_source"] != "pair"
    settings.EVENKEEL_VIRTUAL_ACCELERATORS = "a=k1:1"
    assert sharing(one)["expected_source"] == "pair"
