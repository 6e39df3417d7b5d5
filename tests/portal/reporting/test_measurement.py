"""Throughput measured while runs train: what is kept of it, who counts on it, and what a missed pace leads to."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from portal.execution import launch_request
from portal.jobs.models import Job, JobEvent, ModelType, Run, ThroughputSample
from portal.snapshot.take import take_snapshot
from portal.throughput import profiles
from scheduling.lifecycle import State
from tests.portal.api_calls import Api
from tests.portal.world import World, check_invariants

pytestmark = pytest.mark.django_db


@pytest.fixture
def real() -> World:
    return World(emulated=False)


@pytest.fixture
def virtual(settings: Any) -> World:
    settings.EVENKEEL_VIRTUAL_ACCELERATORS = "a=k1:4"
    return World()


def unknown(world: World, **keys: Any) -> Job:
    """A job of which nothing is known, in training."""
    job = world.submit(throughput={}, **keys)
    world.train(job)
    return job


def reported(world: World, job: Job, steps_per_s: float, *, first: int = 1, steps: int = 12) -> None:
    """A report a step, so many steps a second apart."""
    began = timezone.now() - timedelta(minutes=10) + timedelta(seconds=first)
    metrics = [
        {"step": step, "at": began.timestamp() + (step - first) / steps_per_s, "loss": 0.5}
        for step in range(first, first + steps)
    ]
    world.report(job, step=first + steps, metrics=metrics)


def curve_of(world: World, job: Job) -> Any:
    snapshot = take_snapshot(world.cluster, timezone.now()).snapshot
    return next(view.curves["k1"] for view in snapshot.jobs if view.id == str(job.pk))


def model_type() -> ModelType:
    return ModelType.objects.create(name="own_net", title="Own net", argv=["python", "net.py"])


def test_the_median_after_warm_up_is_kept(real: World) -> None:
    job = unknown(real, batch_size=32)
    start = timezone.now().timestamp() - 300
    seconds = [0.0, 9.0, 18.0, 27.0, 27.5, 28.0, 40.0, 40.5, 41.0]  # warm-up is slow, and so is one checkpoint
    metrics = [{"step": step, "at": start + at, "loss": 1.0} for step, at in enumerate(seconds)]
    real.report(job, step=8, metrics=metrics)
    sample = ThroughputSample.objects.get()
    assert (sample.workload, sample.batch_size, sample.accelerator_type) == (f"job:{job.pk}", 32, "k1")
    assert (sample.count, sample.samples, sample.emulated) == (1, 5, False)
    assert sample.steps_per_s == pytest.approx(2.0)
    assert sample.measured_at.timestamp() == pytest.approx(start + 41.0)
    assert real.run(job).steps_per_s == pytest.approx(3 / 13)


def test_too_few_reports_are_no_measurement(real: World) -> None:
    job = unknown(real)
    reported(real, job, 4.0, steps=6)
    assert not ThroughputSample.objects.exists()
    assert curve_of(real, job).source == "trial"
    reported(real, job, 4.0, first=7, steps=1)
    assert ThroughputSample.objects.get().samples == 3


def test_a_later_launch_has_a_row_of_its_own(real: World) -> None:
    job = unknown(real)
    reported(real, job, 4.0)
    reported(real, job, 4.0, first=20)
    assert ThroughputSample.objects.count() == 1
    real.gone(job, "launch_failed")
    Run.objects.update(not_before=None)
    real.train(job)
    reported(real, job, 6.0)
    assert sorted(ThroughputSample.objects.values_list("steps_per_s", flat=True)) == pytest.approx([4.0, 6.0], rel=1e-3)


@pytest.mark.parametrize("place", ["real", "virtual"])
def test_a_job_of_which_nothing_is_known_grows_once_it_is_measured(place: str, request: pytest.FixtureRequest) -> None:
    world: World = request.getfixturevalue(place)
    job = unknown(world, steps=100_000)
    assert (world.gpus(job), curve_of(world, job).source) == (1, "trial")
    world.round()
    assert (world.gpus(job), world.state(job)) == (1, State.RUNNING)
    reported(world, job, 4.0)
    curve = curve_of(world, job)
    assert (curve.source, curve.at(1)) == ("measured", pytest.approx(4.0))
    world.round()
    assert world.state(job) is State.CHECKPOINTING
    assert world.gpus(job) > 1
    check_invariants(world)


def test_a_measured_number_stands_above_the_job_files(real: World) -> None:
    job = real.submit(throughput={"k1": [10.0]}, gpus={"min": 1, "max": 1})
    real.train(job)
    reported(real, job, 4.0)
    assert (curve_of(real, job).source, curve_of(real, job).at(1)) == ("measured", pytest.approx(4.0))


def test_programs_of_the_catalogue_are_measured_for_each_other_on_real_devices(real: World) -> None:
    model_type()
    first = unknown(real, command=None, model_type="own_net", gpus={"min": 1, "max": 1})
    reported(real, first, 4.0)
    assert ThroughputSample.objects.get().workload == "own_net"
    second = real.submit(command=None, model_type="own_net", throughput={})
    assert curve_of(real, second).source == "measured"


def test_emulated_runs_say_nothing_of_other_jobs(virtual: World, settings: Any) -> None:
    model_type()
    first = unknown(virtual, command=None, model_type="own_net", gpus={"min": 1, "max": 1})
    reported(virtual, first, 4.0)
    sample = ThroughputSample.objects.get()
    assert (sample.workload, sample.emulated) == (f"job:{first.pk}", True)
    second = virtual.submit(command=None, model_type="own_net", throughput={})
    assert (curve_of(virtual, first).source, curve_of(virtual, second).source) == ("measured", "trial")
    settings.EVENKEEL_VIRTUAL_ACCELERATORS = ""
    assert curve_of(virtual, first).source == "trial"
    assert profiles.measured_numbers(["own_net", f"job:{first.pk}"], virtual.cluster.pk) == {}


def test_a_given_pace_is_no_measurement(virtual: World) -> None:
    job = virtual.submit(throughput={"k1": [10.0]}, gpus={"min": 1, "max": 1})
    virtual.train(job)
    paced(job, launch_request.pace_of(virtual.run(job), "k1", 1))
    reported(virtual, job, 4.0)
    assert ThroughputSample.objects.get().emulated
    assert (curve_of(virtual, job).source, curve_of(virtual, job).at(1)) == ("user", 10.0)


# Pace


def paced(job: Job, steps_per_s: float | None) -> None:
    """As the launch sets it."""
    assert steps_per_s
    Run.objects.filter(job=job).update(pace_steps_per_s=steps_per_s)


def test_a_run_that_cannot_keep_its_pace_says_so_once(virtual: World) -> None:
    job = virtual.submit(throughput={"k1": [10.0]}, gpus={"min": 1, "max": 1})
    virtual.train(job)
    paced(job, 10.0)
    api = Api(virtual.user)
    marked = []
    for first, steps_per_s in ((1, 9.5), (100, 5.0), (200, 9.5), (300, 5.0)):
        reported(virtual, job, steps_per_s, first=first, steps=45)
        marked.append(api.get(f"jobs/{job.number}").json["pace_missed"])
    assert marked == [False, True, False, True]
    event = JobEvent.objects.get(kind="pace_missed")
    assert "5 of 10 steps/s" in event.text
    assert "pace_missed" in [row["kind"] for row in api.get(f"jobs/{job.number}/events").json["results"]]


def test_a_run_without_a_pace_misses_none(real: World) -> None:
    job = real.submit(throughput={"k1": [10.0]})
    real.train(job)
    reported(real, job, 1.0)
    assert not real.run(job).pace_missed
    assert not JobEvent.objects.filter(kind="pace_missed").exists()


def test_answers_about_a_job_say_that_it_is_emulated(virtual: World) -> None:
    job = unknown(virtual)
    for part in ("metrics", "cost", "explanation"):
        assert Api(virtual.user).get(f"jobs/{job.number}/{part}").json["emulated"] is True


def test_answers_about_a_job_on_real_devices_do_not(real: World) -> None:
    job = unknown(real)
    for part in ("metrics", "cost", "explanation"):
        assert Api(real.user).get(f"jobs/{job.number}/{part}").json["emulated"] is False
