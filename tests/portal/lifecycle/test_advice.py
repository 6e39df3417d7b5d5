"""What a reason advises is tried as it says, and is not refused."""

from __future__ import annotations

from typing import Any

import pytest
from django.utils import timezone

from portal.jobs.models import Job, Run
from portal.lifecycle.end_run import explain_exit
from scheduling.executors.base import ExitInfo
from scheduling.lifecycle import State
from tests.portal.api_calls import Api
from tests.portal.world import World

pytestmark = pytest.mark.django_db


@pytest.fixture
def world(db: None) -> World:
    return World()


def training(world: World, *, sdk: bool = True, **keys: Any) -> Job:
    job = world.submit(**keys)
    world.round()
    world.report(job, ready_at=timezone.now().timestamp(), sdk=sdk)
    world.unprotect(job)
    return job


def test_after_a_time_limit_with_a_checkpoint_it_can_go_on_from_it(world: World, api: Api) -> None:
    job = training(world, max_duration=60)
    world.checkpoint(job, 300)
    world.gone(job, "time_limit", message="stopped after its limit of 60 s")
    text = api.get(f"jobs/{job.number}").json["reason"]["text"]
    assert "Resubmit it with resume_from: latest to continue." in text
    assert api.post(f"jobs/{job.number}/resubmit", {"resume_from": "latest"}).status == 201


@pytest.mark.parametrize("sdk", [True, False])
def test_without_one_that_is_not_advised_and_what_is_works(world: World, api: Api, sdk: bool) -> None:
    job = training(world, sdk=sdk, max_duration=60)
    world.gone(job, "time_limit", message="stopped after its limit of 60 s")
    text = api.get(f"jobs/{job.number}").json["reason"]["text"]
    assert "resume_from" not in text
    assert ("EVENKEEL_ARTIFACT_DIR can be downloaded" in text) is not sdk
    assert "Resubmit it with a larger max_duration" in text
    assert api.post(f"jobs/{job.number}/resubmit", {"max_duration": 600}).status == 201
    assert api.post(f"jobs/{job.number}/resubmit", {"resume_from": "latest"}).status == 400


@pytest.mark.parametrize("checkpoint", [True, False])
def test_a_job_that_has_succeeded_is_continued_only_where_it_can_be(world: World, api: Api, checkpoint: bool) -> None:
    job = training(world, sdk=checkpoint)
    if checkpoint:
        world.checkpoint(job, 1_000)
        world.report(job, step=1_000)
    world.gone(job, "done", step=1_000 if checkpoint else None)
    assert world.state(job) is State.FINISHED
    refused = api.patch(f"jobs/{job.number}", {"total_steps": 2_000})
    assert refused.status == 409
    changes: dict[str, Any] = {"total_steps": 2_000} | ({"resume_from": "latest"} if checkpoint else {})
    assert ("resume_from" in str(refused.json)) is checkpoint
    assert api.post(f"jobs/{job.number}/resubmit", changes).status == 201


@pytest.mark.parametrize("restartable", [None, True])
def test_a_hold_is_advised_only_where_it_is_not_refused(world: World, api: Api, restartable: bool | None) -> None:
    job = training(world, sdk=False, restartable=restartable)
    refused = api.patch(f"jobs/{job.number}", {"partition": "other"})
    assert refused.status == 409
    assert ("put the job on hold first" in str(refused.json)) is bool(restartable)
    assert (api.post(f"jobs/{job.number}/hold").status == 200) is bool(restartable)


def test_a_refused_hold_says_what_is_taken(world: World, api: Api) -> None:
    job = training(world, sdk=False)
    refused = api.post(f"jobs/{job.number}/hold")
    assert refused.status == 409
    assert "set restartable to true" in str(refused.json)
    assert api.patch(f"jobs/{job.number}", {"restartable": True}).json["restartable"] is True
    assert api.post(f"jobs/{job.number}/hold").status == 200
    world.gone(job)
    world.round()
    said = api.get(f"jobs/{job.number}/explanation").json
    assert "released" in said["would_change"]
    assert api.post(f"jobs/{job.number}/release").status == 200


@pytest.mark.parametrize(
    ("message", "gpus", "advice"),
    [
        ("the job used more than its 512 MiB of memory", {"min": 1, "max": None}, "More of it (memory) may help."),
        ("CUDA out of memory", {"min": 1, "max": None}, "A smaller batch or more GPUs may help."),
        ("CUDA out of memory", {"min": 1, "max": 1}, "A smaller batch may help."),
    ],
)
def test_more_memory_is_advised_where_it_was_short(message: str, gpus: dict[str, Any], advice: str) -> None:
    run = Run(job=Job(min_gpus=gpus["min"], max_gpus=gpus["max"]))
    assert advice in explain_exit(ExitInfo("out_of_memory", message=message), run)
