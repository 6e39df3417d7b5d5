"""What runs use of their GPUs: from reports to series, profiles, the API and the scheduler's snapshot."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone
from hypothesis import given
from hypothesis import strategies as st

from accounts.models import Membership, Project
from portal.cluster import policy
from portal.core import series
from portal.jobs.models import Decision, Job, ModelType, ResourceProfile, ResourceSeries
from portal.reporting import reports, resources
from portal.snapshot import decisions
from portal.snapshot.take import take_snapshot
from portal.submission.transfer import move_job
from scheduling.domain.usage_history import RESOURCES
from tests.portal.api_calls import Api
from tests.portal.world import World, check_invariants

pytestmark = pytest.mark.django_db


class Watched:
    """A launch whose runner says what it reads, from an hour ago on."""

    def __init__(self, world: World, **keys: Any) -> None:
        self.world = world
        self.job = world.submit(**({"gpus": 1} | keys))
        world.train(self.job)
        self.at = timezone.now() - timedelta(hours=4)

    def say(self, *parts: float | None, interval_s: float = 5.0, **body: Any) -> None:
        """`parts` are of the GPU; the memory is half of that, and of the rest nothing is known."""
        rows = []
        for gpu in parts:
            self.at += timedelta(seconds=interval_s)
            rows.append([self.at.timestamp(), gpu, None if gpu is None else gpu / 2, None, None])
        said = {"interval_s": interval_s, "source": "processes", "samples": rows}
        self.world.report(self.job, resources=said, **body)

    def found(self, points: int = 500) -> Any:
        return Api(self.world.user).get(f"jobs/{self.job.number}/resources?points={points}").json


def program() -> ModelType:
    return ModelType.objects.create(name="own_net", title="Own net", argv=["python", "net.py"])


def test_what_was_said_is_shown(world: World) -> None:
    watched = Watched(world)
    watched.say(0.25, 0.75)
    found = watched.found()
    assert [value for _, value in found["series"]["gpu"]] == [0.25, 0.75]
    assert [value for _, value in found["series"]["gpu_memory"]] == [0.125, 0.375]
    assert [value for _, value in found["series"]["pcie"]] == [None, None]
    first, second = (at for at, _ in found["series"]["gpu"])
    assert second - first == pytest.approx(5.0)
    (launch,) = found["launches"]
    assert (launch["type"], launch["gpus"], launch["emulated"], launch["source"]) == ("k1", 1, True, "processes")
    assert found["emulated"] is True


def test_a_job_that_never_ran_has_empty_series(world: World) -> None:
    job = world.submit()
    found = Api(world.user).get(f"jobs/{job.number}/resources").json
    assert found["series"] == {name: [] for name in RESOURCES}
    assert found["launches"] == found["profiles"] == []


def test_rows_stay_bounded_and_keep_their_mean(world: World) -> None:
    watched = Watched(world)
    for _ in range(20):
        watched.say(*[0.2, 0.6] * 50)
    kept = ResourceSeries.objects.get()
    rows = series.unpack(kept.packed)
    assert kept.interval_s == 20.0
    assert len(rows) <= series.MOST_ROWS
    assert len(kept.tail) <= resources.TAIL + 100
    assert sum(row[1] or 0.0 for row in rows) / len(rows) == pytest.approx(0.4, abs=0.01)
    assert len(watched.found(points=50)["series"]["gpu"]) <= 50


def test_repeats_and_clocks_that_jump_change_nothing(world: World) -> None:
    watched = Watched(world)
    watched.say(0.5, 0.5)
    before = ResourceSeries.objects.get().tail
    watched.at -= timedelta(seconds=10)
    watched.say(0.9, 0.9)
    watched.at += timedelta(days=3)
    watched.say(0.9)
    assert ResourceSeries.objects.get().tail == before


def test_another_launch_has_a_series_of_its_own_with_a_gap_between(world: World) -> None:
    watched = Watched(world, restartable=True, retry={"on": ["signal"]})
    watched.say(0.5, 0.5)
    world.checkpoint(watched.job, 10)
    world.gone(watched.job, "signal", signal=9)
    type(world.run(watched.job)).objects.update(not_before=None)
    world.train(watched.job)
    watched.at += timedelta(minutes=10)
    watched.say(0.7)
    found = watched.found()
    assert [value for _, value in found["series"]["gpu"]] == [0.5, 0.5, None, 0.7]
    assert [launch["attempt"] for launch in found["launches"]] == [1, 2]


def test_the_end_of_a_launch_is_packed_and_counted(world: World) -> None:
    watched = Watched(world)
    watched.say(0.2, 0.4)
    assert not ResourceProfile.objects.exists()
    world.report(watched.job, exit={"reason": "done"})
    kept = ResourceSeries.objects.get()
    assert (kept.tail, len(series.unpack(kept.packed))) == ([], 2)
    (profile,) = watched.found()["profiles"]
    assert (profile["launches"], profile["seconds"]) == (1, 10.0)
    assert profile["mean"] == {"gpu": 0.3, "gpu_memory": 0.15, "gpu_cores": None, "pcie": None}
    assert profile["peak"]["gpu"] == 0.4


def test_programs_of_the_catalogue_have_one_profile_for_each_device(world: World) -> None:
    program()
    for gpu in (0.2, 0.6):
        watched = Watched(world, command=None, model_type="own_net")
        watched.say(*[gpu] * 24)
        world.report(watched.job, exit={"reason": "done"})
    profile = ResourceProfile.objects.get()
    assert (profile.workload, profile.accelerator_type, profile.launches, profile.emulated) == (
        "own_net",
        "k1",
        2,
        True,
    )
    assert profile.sums["gpu"] == pytest.approx([96.0, 240.0, 0.6])
    assert {row[1] for row in series.unpack(profile.history)} == {0.6}, "the newest launch's course"
    check_invariants(world)


def test_a_short_launch_does_not_take_the_place_of_a_history(world: World) -> None:
    program()
    long = Watched(world, command=None, model_type="own_net")
    long.say(*[0.5] * 48)
    short = Watched(world, command=None, model_type="own_net")
    short.say(0.9)
    world.report(short.job, exit={"reason": "done"})
    profile = ResourceProfile.objects.get()
    assert {row[1] for row in series.unpack(profile.history)} == {0.5}


def test_commands_have_a_profile_of_their_own(world: World) -> None:
    for _ in range(2):
        watched = Watched(world)
        watched.say(*[0.5] * 24)
        world.report(watched.job, exit={"reason": "done"})
    assert ResourceProfile.objects.count() == 2
    assert len(watched.found()["profiles"]) == 1


def test_it_goes_with_the_job_to_another_project(world: World) -> None:
    watched = Watched(world)
    watched.say(0.5, 0.5)
    world.gone(watched.job, "done", step=1000)
    other = Project.objects.create(key="speech", name="Speech")
    Membership.objects.create(project=other, user=world.user)
    before = watched.found()
    move_job(actor=world.user, job=Job.objects.get(pk=watched.job.pk), key="speech")
    assert watched.found() == before
    Membership.objects.filter(project=other).delete()
    assert Api(world.user).get(f"jobs/{watched.job.number}/resources").status == 404


def test_what_nothing_was_added_to_for_long_is_pruned(world: World, settings: Any) -> None:
    watched = Watched(world)
    watched.say(*[0.5] * 24)
    settings.EVENKEEL_KEEP = replace(settings.EVENKEEL_KEEP, resources_days=7)
    resources.prune(timezone.now() + timedelta(days=6))
    assert (ResourceSeries.objects.count(), ResourceProfile.objects.count()) == (1, 1)
    resources.prune(timezone.now() + timedelta(days=8))
    assert (ResourceSeries.objects.count(), ResourceProfile.objects.count()) == (0, 0)


@pytest.mark.parametrize(
    ("said", "field"),
    [
        ({"samples": [[1.0, 1.5, None, None, None]]}, "resources.samples.0.1"),
        ({"samples": [[1.0, 0.5, None, None]]}, "resources.samples.0.4"),
        ({"samples": [[1.0, 0.5, None, None, "x"]]}, "resources.samples.0.4"),
        ({"samples": [[float(n), 0.5, None, None, None] for n in range(501)]}, "resources.samples"),
        ({"samples": [], "interval_s": 0}, "resources.interval_s"),
        ({"samples": [], "source": "guess"}, "resources.source"),
    ],
)
def test_what_cannot_be_is_refused_by_field(said: dict[str, Any], field: str) -> None:
    body = {"epoch": 1, "seq": 1, "sent_at": 1.0, "resources": {"interval_s": 5.0, "source": "nvml"} | said}
    with pytest.raises(ValueError, match="validation error") as refused:
        reports.Report.model_validate(body)
    places = [".".join(str(part) for part in error["loc"]) for error in refused.value.errors()]  # type: ignore[attr-defined]
    assert any(place.startswith(field) for place in places)


def test_a_report_without_resources_is_as_before(world: World, django_assert_max_num_queries: Any) -> None:
    watched = Watched(world)
    world.report(watched.job, step=1)
    with django_assert_max_num_queries(7):
        world.report(watched.job, step=2)
    assert not ResourceSeries.objects.exists()


parts = st.one_of(st.none(), st.floats(0, 1))


@given(st.lists(st.tuples(st.floats(0, 3), parts, parts, parts, parts), min_size=1, max_size=60))
def test_packed_rows_are_what_they_were_to_a_thousandth(given_rows: list[tuple[float, Any, Any, Any, Any]]) -> None:
    rows, at = [], 0.0
    for step, *values in given_rows:
        at += step
        rows.append([at, *values])
    back = series.unpack(series.pack(rows))
    assert len(back) == len(rows)
    for row, found in zip(rows, back, strict=True):
        for value, other in zip(row, found, strict=True):
            assert (value is None) == (other is None)
            assert value is None or other == pytest.approx(value, abs=0.0501 if value is row[0] else 0.0006)


@given(st.lists(st.integers(0, 5_000), min_size=1, max_size=40, unique=True).map(sorted), st.integers(2, 30))
def test_an_even_course_has_a_row_for_every_interval(seconds: list[int], most: int) -> None:
    rows: list[series.Row] = [[float(at), 0.5, None, None, None] for at in seconds]
    found, interval_s = series.even(series.grouped(rows, 5.0), 5.0)
    assert [row[0] for row in found] == [number * interval_s for number in range(len(found))]
    short, _ = series.bounded(found, interval_s, most)
    assert 1 <= len(short) <= most
    history = series.history_of(short, interval_s, 0.25)
    assert history is not None
    assert set(history.gpu_memory) == {0.25}
    assert history.gpu_cores == history.gpu


def test_an_hour_of_training_takes_few_bytes() -> None:
    rows: list[series.Row] = [[5.0 * n, 0.9 + 0.02 * (n % 5), 0.41, None, None] for n in range(720)]
    assert len(series.pack(rows)) < 1_000


def with_policy_that_reads(world: World) -> Any:
    policy.set_policy(actor=None, cluster=world.cluster, name="dqn_gpu", parameters={})
    world.cluster.refresh_from_db()
    return take_snapshot(world.cluster, timezone.now()).snapshot


def test_policies_that_ask_are_told_what_an_application_used(world: World, settings: Any) -> None:
    settings.EVENKEEL_VIRTUAL_ACCELERATORS = "a=k1:4"
    program()
    watched = Watched(world, command=None, model_type="own_net")
    watched.say(*[0.2] * 12, *[0.6] * 12)
    world.report(watched.job, exit={"reason": "done"})
    world.gone(watched.job, "done", step=1000)
    same = world.submit(command=None, model_type="own_net", gpus=1)
    half = world.submit(command=None, model_type="own_net", gpus=0.5)
    elsewhere = world.submit(
        command=None, model_type="own_net", gpus={"max": 1, "types": ["k2"]}, throughput={"k2": [1]}
    )
    unknown = world.submit(gpus=1)
    snapshot = with_policy_that_reads(world)
    history = {job.id: job.history for job in snapshot.jobs}
    found = history[str(same.pk)]
    assert found is not None
    assert (found.interval_s, len(found.gpu)) == (5.0, 24)
    assert (found.gpu[0], found.gpu[-1], found.gpu_memory[-1], found.pcie[-1]) == (0.2, 0.6, 0.3, 0.0)
    assert [history[str(job.pk)] for job in (half, elsewhere, unknown)] == [None] * 3
    settings.EVENKEEL_VIRTUAL_ACCELERATORS = ""
    later = take_snapshot(world.cluster, timezone.now()).snapshot
    assert all(job.history is None for job in later.jobs), "real devices are not told of emulated ones"


def test_policies_that_do_not_ask_are_told_nothing(world: World, settings: Any) -> None:
    settings.EVENKEEL_VIRTUAL_ACCELERATORS = "a=k1:4"
    watched = Watched(world)
    watched.say(*[0.2] * 24)
    snapshot = take_snapshot(world.cluster, timezone.now()).snapshot
    assert [job.history for job in snapshot.jobs] == [None]


def test_a_decision_with_histories_can_be_replayed(world: World, settings: Any) -> None:
    settings.EVENKEEL_VIRTUAL_ACCELERATORS = "a=k1:4"
    watched = Watched(world)
    watched.say(*[0.2] * 24)
    world.submit(gpus=1)
    with_policy_that_reads(world)
    world.round()
    decision = Decision.objects.latest("round")
    assert any(job.history for job in decisions.snapshot_of(decision).jobs)
