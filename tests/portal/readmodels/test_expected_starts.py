"""Expected starts of the live queue: said of those that wait, with their age, and calibrated on what came true."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from django.core.cache import cache
from django.utils import timezone

from accounts.models import Quota
from portal.core.times import iso
from portal.forecasts import inputs, start_tasks
from portal.jobs.models import Assignment, Hold, Job, Run, StartSample
from portal.lifecycle.cancel import cancel_job
from portal.lifecycle.suspend import hold_job, release_job
from portal.readmodels.jobs.expected_start import ExpectedStart
from portal.readmodels.jobs.summary import describe_jobs
from scheduling.forecast.calibration import LEAST_SAMPLES
from scheduling.lifecycle import State
from tests.portal.api_calls import Api
from tests.portal.world import World

pytestmark = pytest.mark.django_db


@pytest.fixture
def world() -> World:
    cache.clear()
    return World(policy="fifo_gang")


def foresee(world: World) -> None:
    world.cluster.refresh_from_db()
    start_tasks.foresee_cluster(world.cluster)


def said_of(job: Job) -> dict[str, object]:
    row = Job.objects.select_related("run", "project").get(pk=job.pk)
    found = describe_jobs([row], timezone.now())[0]["expected_start"]
    assert found is not None
    return dict(found)


def seconds_until(at: object) -> float:
    return (datetime.fromisoformat(str(at)) - timezone.now()).total_seconds()


def busy(world: World, steps: int = 28_000) -> Job:
    """A job that holds all four GPUs, at 28 steps/s."""
    first = world.submit(steps=steps, gpus={"min": 4, "max": 4})
    world.train(first)
    return first


def test_a_waiting_job_is_told_when_the_one_before_it_ends(world: World) -> None:
    busy(world)
    waiting = world.submit(gpus={"min": 4})
    world.round()
    assert said_of(waiting)["reason"] == {"code": "pending", "text": "It is being worked out."}
    foresee(world)
    said = said_of(waiting)
    assert said["reason"] is None
    assert (said["basis"], said["run_time"], said["outcomes"]) == ("simulated", "steps", 0)
    assert seconds_until(said["p10_at"]) <= seconds_until(said["p50_at"]) <= seconds_until(said["p90_at"])
    assert seconds_until(said["p50_at"]) == pytest.approx(1_000, rel=0.15)
    assert abs(seconds_until(said["as_of"])) < 30


def test_only_jobs_that_wait_are_told(world: World) -> None:
    running = busy(world)
    foresee(world)
    row = Job.objects.select_related("run", "project").get(pk=running.pk)
    assert describe_jobs([row], timezone.now())[0]["expected_start"] is None


def test_it_says_why_nothing_can_be_said(world: World) -> None:
    busy(world)
    held, after, never = world.submit(), world.submit(), world.submit(gpus={"min": 64})
    after = world.submit(dependencies=[{"type": "afterok", "job": held.number}])
    hold_job(actor=world.user, job=held)
    world.round()
    foresee(world)
    tokens = [said["code"] for job in (held, after, never) if isinstance(said := said_of(job)["reason"], dict)]
    assert tokens == ["held", "dependency", "never"]


def test_a_hold_shows_at_once(world: World) -> None:
    busy(world)
    waiting = world.submit(gpus={"min": 4})
    world.round()
    foresee(world)
    hold_job(actor=world.user, job=Job.objects.get(pk=waiting.pk))
    reason = said_of(waiting)["reason"]
    assert isinstance(reason, dict)
    assert reason["code"] == "held"


def test_what_was_said_is_kept_with_what_came_true(world: World) -> None:
    first = busy(world)
    waiting, given_up = world.submit(gpus={"min": 4}), world.submit(gpus={"min": 4})
    world.round()
    foresee(world)
    assert StartSample.objects.filter(waited_s=None).count() == 2
    foresee(world)
    assert StartSample.objects.count() == 2  # neither has waited much longer since
    cancel_job(user=world.user, job=Job.objects.get(pk=given_up.pk))
    world.report(first, step=28_000)
    world.gone(first, "done", step=28_000)
    world.round()
    foresee(world)
    started, ended = StartSample.objects.get(job=waiting), StartSample.objects.get(job=given_up)
    assert (started.started, ended.started) == (True, False)
    assert started.waited_s is not None
    assert ended.waited_s is not None
    assert 0.0 <= ended.waited_s <= started.waited_s


def test_while_it_is_held_a_job_does_not_wait(world: World) -> None:
    first = busy(world)
    waiting = world.submit(gpus={"min": 4})
    world.round()
    foresee(world)
    hold_job(actor=world.user, job=Job.objects.get(pk=waiting.pk))
    now = timezone.now()
    Job.objects.filter(pk=waiting.pk).update(held_at=now - timedelta(hours=2))
    StartSample.objects.update(made_at=now - timedelta(hours=3))
    (known,) = inputs.samples_of(world.cluster, now)
    assert not known.over
    assert known.waited_s == pytest.approx(3_600, abs=5)
    foresee(world)
    closed = StartSample.objects.get(job=waiting)
    assert not closed.started
    assert closed.waited_s == pytest.approx(3_600, abs=5)
    release_job(actor=world.user, job=Job.objects.get(pk=waiting.pk))
    world.round()
    foresee(world)
    world.report(first, step=28_000)
    world.gone(first, "done", step=28_000)
    world.round()
    foresee(world)
    again = StartSample.objects.get(job=waiting, started=True)
    assert again.waited_s == pytest.approx(0, abs=60)


def test_a_job_is_sampled_again_when_it_has_waited_twice_as_long(world: World) -> None:
    busy(world)
    waiting = world.submit(gpus={"min": 4})
    world.round()
    foresee(world)
    an_hour_ago = timezone.now() - timedelta(hours=1)
    Job.objects.filter(pk=waiting.pk).update(submitted_at=an_hour_ago)
    StartSample.objects.update(made_at=an_hour_ago)
    foresee(world)
    assert StartSample.objects.filter(job=waiting).count() == 2


def test_intervals_follow_what_came_true(world: World) -> None:
    """Where jobs start three times later than was said, that is what is said from then on."""
    first = busy(world)
    waiting = world.submit(gpus={"min": 4})
    world.round()
    made_at = timezone.now() - timedelta(hours=2)
    StartSample.objects.bulk_create(
        StartSample(cluster=world.cluster, job=first, made_at=made_at, p10_s=900, p50_s=1_000, p90_s=1_100,
                    waited_s=2_000 + 40 * n, started=True)
        for n in range(LEAST_SAMPLES + 20)
    )  # fmt: skip
    foresee(world)
    said = said_of(waiting)
    assert said["outcomes"] == LEAST_SAMPLES + 20
    assert seconds_until(said["p50_at"]) == pytest.approx(3_000, rel=0.2)
    assert seconds_until(said["p10_at"]) > 1_500


def test_samples_are_pruned_by_age_and_number(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    job, now = busy(world), timezone.now()
    for days in (0, 1, 2, 40):
        StartSample.objects.create(
            cluster=world.cluster, job=job, made_at=now - timedelta(days=days), p10_s=1, p50_s=2, p90_s=3
        )
    inputs.prune(now)
    assert StartSample.objects.count() == 3
    monkeypatch.setattr(inputs, "MOST_KEPT", 2)
    inputs.prune(now)
    assert StartSample.objects.count() == 2


def test_jobs_without_a_known_speed_go_by_their_owners_earlier_ones(world: World) -> None:
    for _ in range(10):
        ended = world.submit()
        Run.objects.filter(job=ended).update(
            has_trained=True, running_s=500.0, step=10, state="FINISHED", ended_at=timezone.now()
        )
    first = world.submit(throughput={}, gpus={"min": 4, "max": 4})
    world.train(first)
    waiting = world.submit(throughput={}, gpus={"min": 4})
    world.round()
    foresee(world)
    said = said_of(waiting)
    assert said["run_time"] == "history"
    assert seconds_until(said["p50_at"]) == pytest.approx(500, abs=60)


def test_the_queue_in_the_api_says_it_too(world: World) -> None:
    busy(world)
    waiting = world.submit(gpus={"min": 4})
    world.round()
    foresee(world)
    api = Api(world.user)
    listed = api.get("jobs?state=queued").json["results"]
    assert [job["number"] for job in listed] == [waiting.number]
    assert listed[0]["expected_start"]["p50_at"] == api.get(f"jobs/{waiting.number}").json["expected_start"]["p50_at"]


def test_what_starts_in_thirty_thousand_years_is_not_said_and_stops_nothing(world: World) -> None:
    forever = world.submit(steps=10**12, gpus={"min": 4, "max": 4})
    world.train(forever)
    deadline = (timezone.now() + timedelta(days=1)).isoformat()
    waiting = world.submit(gpus={"min": 4}, deadline=deadline)
    world.round()
    foresee(world)
    reason = said_of(waiting)["reason"]
    assert isinstance(reason, dict)
    assert reason["code"] == "unknown"
    assert Api(world.user).get(f"jobs/{waiting.number}").status == 200
    assert world.round() is not None


def token_of(job: Job) -> str:
    reason = said_of(job)["reason"]
    assert isinstance(reason, dict)
    return str(reason["code"])


def said_before(job: Job, *, seconds_ago: float, starts_in_s: float) -> None:
    at = timezone.now().timestamp()
    start = at + starts_in_s
    cache.set(f"expected-start/{job.pk}", ExpectedStart(at - seconds_ago, start, start, start), 600)


def test_a_budgets_end_is_told_as_why_tells_it(world: World) -> None:
    busy(world)
    waiting = world.submit(gpus={"min": 4})
    Quota.objects.create(project=world.project, kind="gpu_hours", period="month", limit=0, hard=True)
    world.round()
    foresee(world)
    until = datetime.fromtimestamp(world.run(waiting).reason_detail["expected_start_at"], UTC)
    reason = said_of(waiting)["reason"]
    assert isinstance(reason, dict)
    assert reason["code"] == "period"
    assert f"until {until:%Y-%m-%d %H:%M} UTC" in reason["text"]


@pytest.mark.parametrize("token", ["no_profile", "node_unavailable", "never"])
def test_no_start_is_told_of_a_job_that_the_rounds_say_cannot_start(world: World, token: str) -> None:
    waiting = world.submit()
    said_before(waiting, seconds_ago=1, starts_in_s=500)
    Run.objects.filter(job=waiting).update(reason_token=token)
    assert token_of(waiting) == token


def test_a_window_that_bars_it_bounds_what_was_said_before(world: World) -> None:
    waiting = world.submit()
    said_before(waiting, seconds_ago=1, starts_in_s=500)
    until = timezone.now() + timedelta(hours=2)
    Run.objects.filter(job=waiting).update(reason_token="reservation", reason_detail={"until": until.timestamp()})
    assert said_of(waiting)["p10_at"] == said_of(waiting)["p90_at"] == iso(until)
    Run.objects.filter(job=waiting).update(reason_detail={"until": until.timestamp(), "elsewhere": True})
    assert seconds_until(said_of(waiting)["p10_at"]) == pytest.approx(500, abs=60)


def test_what_was_said_before_it_lost_its_gpus_is_forgotten(world: World) -> None:
    first = busy(world)
    said_before(first, seconds_ago=300, starts_in_s=400)
    Run.objects.filter(job=first).update(state=State.WAITING_FOR_RESOURCE.value, state_since=timezone.now())
    assert token_of(first) == "pending"
    said_before(first, seconds_ago=-5, starts_in_s=400)
    assert said_of(first)["p50_at"] is not None


def test_what_was_said_before_does_not_stand_for_what_is_said_now(world: World) -> None:
    first = busy(world)
    world.submit(gpus={"min": 4})
    world.checkpoint(first, 20)
    Run.objects.filter(job=first).update(state=State.WAITING_FOR_RESOURCE.value, state_since=timezone.now())
    Assignment.objects.all().delete()
    Hold.objects.all().delete()
    said_before(first, seconds_ago=30, starts_in_s=0)
    foresee(world)
    assert datetime.fromisoformat(str(said_of(first)["as_of"])) > world.run(first).state_since


def test_a_start_that_has_passed_is_not_told(world: World) -> None:
    waiting = world.submit()
    said_before(waiting, seconds_ago=500, starts_in_s=-100)
    assert token_of(waiting) == "pending"
