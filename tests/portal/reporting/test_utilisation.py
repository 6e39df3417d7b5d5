"""Used against allocated GPU time: from reports to sums by job and day, and what reads them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone

from accounts.models import UsageDay
from portal.jobs.models import Job, JobEvent, RunActivity
from portal.reporting import reports
from tests.portal.api_calls import Api
from tests.portal.world import World, check_invariants

pytestmark = pytest.mark.django_db


class Reporter:
    """A runner whose clock is the test's."""

    def __init__(self, world: World, job: Job, at: datetime | None = None) -> None:
        self.world, self.job, self.at = world, job, at or timezone.now() - timedelta(hours=1)
        self.seq = 1_000

    def say(self, after_s: float, utilisation: list[float] | None, **body: Any) -> None:
        self.at += timedelta(seconds=after_s)
        self.seq += 1
        run = self.world.run(self.job)
        report = reports.Report(
            epoch=run.epoch, seq=self.seq, sent_at=self.at.timestamp(), gpu_utilisation=utilisation, sdk=True, **body
        )
        reports.record_report(run_id=run.pk, report=report, now=max(self.at, timezone.now()))


@pytest.fixture
def reporter(world: World) -> Reporter:
    job = world.submit(gpus={"min": 2, "max": 2})
    world.train(job)
    RunActivity.objects.all().delete()  # of the reports with which it came to train
    reporter = Reporter(world, job)
    reporter.say(0, None, step=0)
    return reporter


def hours(world: World, job: Job) -> tuple[float, float | None]:
    cost = Api(world.user).get(f"jobs/{job.number}/cost").json
    return cost["measured_gpu_hours"], cost["used_gpu_hours"]


def test_use_is_utilisation_times_what_was_held(world: World, reporter: Reporter) -> None:
    job = reporter.job
    assert hours(world, job) == (0.0, None), "nobody said anything yet"
    reporter.say(90, [1.0, 0.0], step=10)
    reporter.say(90, [0.5, 0.5], step=20)
    assert hours(world, job) == pytest.approx((0.1, 0.05))
    reporter.say(180, None, step=30)
    assert hours(world, job) == pytest.approx((0.1, 0.05)), "of this stretch nothing was said"
    cost = Api(world.user).get(f"jobs/{job.number}/cost").json
    assert cost["utilisation"] == 0.5
    assert cost["emulated"] is True
    world.gone(job, "done", step=1000)
    assert Api(world.user).get(f"jobs/{job.number}/cost").json["utilisation"] is None
    assert hours(world, job) == pytest.approx((0.1, 0.05))
    check_invariants(world)


def test_a_long_silence_counts_as_nothing_known(world: World, reporter: Reporter) -> None:
    reporter.say(60, [1.0, 1.0], step=1)
    before = hours(world, reporter.job)
    reporter.say(3_000, [1.0, 1.0], step=2)
    assert hours(world, reporter.job) == before


def test_repeated_and_late_reports_change_nothing(world: World, reporter: Reporter) -> None:
    reporter.say(60, [1.0, 1.0], step=1)
    before = hours(world, reporter.job)
    reporter.seq -= 1
    reporter.say(60, [1.0, 1.0], step=1)
    reporter.say(-500, [1.0, 1.0], step=1)
    assert hours(world, reporter.job) == before


def test_storage_and_events_do_not_grow_with_reports(
    world: World, reporter: Reporter, django_assert_max_num_queries: Any
) -> None:
    reporter.say(10, [0.5, 0.5], step=1)
    events = JobEvent.objects.count()
    for step in range(2, 12):
        with django_assert_max_num_queries(7):
            reporter.say(10, [0.5, 0.5], step=step)
    assert JobEvent.objects.count() == events
    assert RunActivity.objects.count() == 1
    assert UsageDay.objects.count() == 1


def test_days_are_the_sites(world: World) -> None:
    job = world.submit(gpus={"min": 1, "max": 1})
    world.train(job)
    RunActivity.objects.all().delete()
    midnight = datetime(2026, 3, 31, tzinfo=UTC)
    reporter = Reporter(world, job, midnight - timedelta(minutes=2))
    for step in range(5):
        reporter.say(60, [1.0], step=step)
    days = dict(UsageDay.objects.values_list("day", "measured_us_hundredths"))
    assert {str(day): us for day, us in days.items()} == {"2026-03-31": 240 * 10**8}


def test_the_usage_report_has_it_beside_what_was_held(world: World, reporter: Reporter) -> None:
    reporter.say(90, [1.0, 0.0], step=10)
    other = world.submit(gpus={"min": 1, "max": 1})
    world.train(other)
    api = Api(world.user)
    for group_by in ("project", "user", "job", "day", "month", "type"):
        found = api.get(f"usage?group_by={group_by}").json["results"]
        assert sum(row["measured_gpu_hours"] for row in found) == pytest.approx(0.05)
        assert sum(row["used_gpu_hours"] or 0.0 for row in found) == pytest.approx(0.025)
        assert all(row["emulated"] for row in found)
    by_job = {row["key"]: row for row in api.get("usage?group_by=job").json["results"]}
    assert by_job[str(reporter.job.number)]["by_type"][0]["used_gpu_hours"] == pytest.approx(0.025)
    assert by_job[str(other.number)]["used_gpu_hours"] is None


def test_real_devices_are_not_called_emulated() -> None:
    world = World(emulated=False)
    job = world.submit(gpus={"min": 1, "max": 1})
    world.train(job)
    (row,) = Api(world.user).get("usage?group_by=type").json["results"]
    assert row["emulated"] is False


@pytest.mark.parametrize("wrong", [[1.5], [-0.1], [0.5] * 2_000, ["x"]])
def test_what_cannot_be_a_utilisation_is_refused(world: World, wrong: list[Any]) -> None:
    with pytest.raises(ValueError, match="gpu_utilisation"):
        reports.Report(epoch=1, seq=1, sent_at=1.0, gpu_utilisation=wrong)
