"""What is tried again by default, what a job says while it waits for that, and how the wait is ended."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from portal.jobs.models import Job, JobEvent, Run
from portal.lifecycle.cancel import cancel_job
from portal.material import artifacts
from scheduling.lifecycle import State
from tests.portal.api_calls import Api
from tests.portal.world import World, check_invariants

pytestmark = pytest.mark.django_db


@pytest.fixture
def world(db: None) -> World:
    return World()


def failed(world: World, reason: str = "user_error", **retry: object) -> Job:
    job = world.submit(retry=retry) if retry else world.submit()
    world.train(job)
    world.gone(job, reason, exit_code=1 if reason == "user_error" else None)
    return job


@pytest.mark.parametrize(
    ("reason", "again"),
    [
        ("user_error", False),
        ("signal", False),
        ("out_of_memory", False),
        ("time_limit", False),
        ("launch_failed", True),
        ("data_unavailable", True),
        ("runner_lost", True),
    ],
)
def test_by_default_only_what_the_program_did_not_bring_about_is_tried_again(
    world: World, reason: str, again: bool
) -> None:
    job = failed(world, reason)
    assert (world.state(job) is not State.FAILED) is again
    assert (world.run(job).attempt == 2) is again


@pytest.mark.parametrize("reason", ["user_error", "signal", "out_of_memory"])
def test_a_limit_alone_changes_nothing_and_its_name_does(world: World, reason: str) -> None:
    assert world.state(failed(world, reason, limit=5)) is State.FAILED
    assert world.state(failed(world, reason, limit=5, on=[reason])) is not State.FAILED


def test_a_job_that_waits_to_be_tried_again_says_so(world: World, api: Api) -> None:
    job = failed(world, limit=2, backoff_s=600, on=["user_error"])
    shown = api.get(f"jobs/{job.number}").json
    assert shown["state"] == "queued"
    assert (shown["retry"]["attempt"], shown["retry"]["of"], shown["retry"]["why"]) == (2, 3, "Failed with code 1")
    at = world.run(job).not_before
    assert at is not None
    assert shown["reason"]["text"] == f"Failed with code 1; tried again at {at:%H:%M:%S} UTC (attempt 2 of 3)."
    world.round()  # the policy has words of its own for it
    assert api.get(f"jobs/{job.number}").json["reason"]["text"] == shown["reason"]["text"]
    said = api.get(f"jobs/{job.number}/explanation").json
    assert said["text"].startswith("Failed with code 1; tried again in ")
    assert said["text"].endswith(" s (attempt 2 of 3).")
    assert "stopped" in said["would_change"]
    Run.objects.filter(pk=world.run(job).pk).update(not_before=timezone.now())
    world.train(job)
    assert api.get(f"jobs/{job.number}").json["retry"] is None


def test_losses_are_not_counted(world: World, api: Api) -> None:
    job = failed(world, "runner_lost")
    assert api.get(f"jobs/{job.number}").json["retry"]["of"] is None


def test_retries_are_stopped_and_the_job_has_failed(world: World, api: Api) -> None:
    job = failed(world, limit=2, backoff_s=600, on=["user_error"])
    answer = api.post(f"jobs/{job.number}/stop-retrying")
    assert (answer.status, answer.json["state"]) == (200, "failed")
    assert answer.json["exit"]["exit_code"] == 1
    assert answer.json["reason"]["code"] == "USER_ERROR"
    assert "stopped the retries" in answer.json["reason"]["text"]
    assert JobEvent.objects.filter(job=job, kind="FAIL").count() == 2
    world.round()
    assert world.state(job) is State.FAILED
    assert api.post(f"jobs/{job.number}/stop-retrying").status == 409
    check_invariants(world)


def test_only_a_job_that_waits_for_that_can_be_stopped_so(world: World, api: Api) -> None:
    job = world.submit()
    refused = api.post(f"jobs/{job.number}/stop-retrying")
    assert refused.status == 409
    assert "Cancel it" in str(refused.json)
    assert api.post(f"jobs/{job.number}/cancel").status == 200  # as it says


def test_what_a_failed_attempt_left_is_listed_once_the_job_has_ended(world: World) -> None:
    job = failed(world, limit=2, backoff_s=600, on=["user_error"])
    Run.objects.filter(job=job, attempt=1).update(ready_at=timezone.now())
    first = Run.objects.get(job=job, attempt=1)
    now = timezone.now()
    assert artifacts.uncollected(world.cluster.pk, now) == []
    Run.objects.filter(pk=first.pk).update(ended_at=now - timedelta(days=30))  # it may have waited for long
    cancel_job(user=world.user, job=job)
    assert artifacts.uncollected(world.cluster.pk, now) == [first]


def test_a_cancelled_job_whose_program_still_leaves_says_so(world: World, api: Api) -> None:
    job = world.submit()
    world.train(job)
    cancel_job(user=world.user, job=job)
    shown = api.get(f"jobs/{job.number}").json
    assert (shown["state"], shown["ending"]) == ("cancelled", True)
    world.gone(job, "signal", signal=15)
    assert api.get(f"jobs/{job.number}").json["ending"] is False
