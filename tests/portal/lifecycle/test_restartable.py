"""Whether a job can be stopped and started again: its owner's word, else what the SDK says of its program."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.utils import timezone

from accounts.models import User
from portal.cluster.drains import drain_node
from portal.jobfile.patch import JobPatch
from portal.jobs.models import Command, HoldKind, Job, Run
from portal.lifecycle.locking import JobConflict
from portal.lifecycle.suspend import hold_job, release_job
from portal.readmodels.jobs.summary import describe_jobs
from portal.snapshot.take import take_snapshot
from portal.submission.edit import patch_job
from scheduling import domain
from scheduling.lifecycle import State
from tests.portal.world import World, check_invariants

pytestmark = pytest.mark.django_db


@pytest.fixture
def world(db: None) -> World:
    return World({"a": 2, "b": 2})


def plain(world: World, **keys: Any) -> Job:
    """A job without the SDK that trains."""
    job = world.submit(**{"gpus": 1, **keys})
    world.round()
    world.report(job, ready_at=timezone.now().timestamp(), sdk=False)
    world.unprotect(job)
    return job


def seen(world: World, job: Job) -> domain.Job:
    world.cluster.refresh_from_db()
    jobs = take_snapshot(world.cluster, timezone.now()).snapshot.jobs
    return next(one for one in jobs if one.id == str(job.pk))


@pytest.mark.parametrize(
    ("word", "uses_sdk", "can"),
    [
        (None, None, True),
        (None, True, True),
        (None, False, False),
        (True, False, True),
        (True, True, True),
        (False, True, False),
        (False, None, False),
    ],
)
def test_its_owner_is_believed_before_the_sdk(
    world: World, word: bool | None, uses_sdk: bool | None, can: bool
) -> None:
    job = world.submit(restartable=word)
    Run.objects.filter(job=job).update(uses_sdk=uses_sdk)
    job = Job.objects.get(pk=job.pk)
    assert seen(world, job).restartable is can
    assert describe_jobs([job], timezone.now())[0]["restartable"] is can


def test_without_steps_it_keeps_its_size(world: World) -> None:
    job = plain(world, gpus={"min": 1, "max": 2}, restartable=True)
    assert (seen(world, job).restartable, seen(world, job).resizable) == (True, False)
    assert seen(world, world.submit(gpus={"min": 1, "max": 2}, restartable=True)).resizable


def test_a_hold_that_would_lose_all_says_what_can_be_done_and_that_works(world: World) -> None:
    job = plain(world)
    with pytest.raises(JobConflict, match=r"does not use the SDK: held, .* would start from.*set restartable to true"):
        hold_job(actor=world.user, job=job)
    patch_job(actor=world.user, job=job, patch=JobPatch(restartable=True))
    hold_job(actor=world.user, job=job)
    assert Command.objects.filter(run__job=job, verb=Command.Verb.CHECKPOINT_AND_STOP).exists()
    world.gone(job)
    assert (world.state(job), Job.objects.get(pk=job.pk).hold_kind) == (State.WAITING_FOR_RESOURCE, HoldKind.USER)
    release_job(actor=world.user, job=job)
    world.round()
    assert (world.run(job).epoch, world.run(job).attempt) == (2, 1)
    check_invariants(world)


def test_its_word_can_be_taken_back(world: World) -> None:
    job = plain(world, restartable=True)
    for word in (False, None):
        patch_job(actor=world.user, job=job, patch=JobPatch(restartable=word))
        with pytest.raises(JobConflict, match="start from the beginning"):
            hold_job(actor=world.user, job=job)


def test_it_moves_off_a_drained_node(world: World) -> None:
    job = plain(world, restartable=True)
    place = world.run(job).assignments.get(during__upper_inf=True).accelerator.node
    boss = User.objects.create_superuser("root@example.org", "x")
    drain_node(actor=boss, node=place, now=timezone.now())
    world.round()
    assert world.state(job) is State.CHECKPOINTING
    world.gone(job)
    world.round()
    now_on = world.run(job).assignments.get(during__upper_inf=True).accelerator.node
    assert now_on.pk != place.pk
    check_invariants(world)


def test_what_a_job_file_did_not_say_is_nobodys_word(world: World) -> None:
    job = world.submit()
    assert job.restartable is None
    assert "restartable" not in job.spec
    assert not re.search("restartable", str(world.submit(restartable=None).spec))


@pytest.mark.parametrize(("word", "attempt", "reason"), [(None, 2, "runner_lost"), (True, 1, "")])
def test_what_is_stopped_from_outside_and_cannot_resume_has_failed_and_says_why(
    world: World, word: bool | None, attempt: int, reason: str
) -> None:
    """Of the node it says nothing."""
    job = plain(world, restartable=word)
    first = world.run(job)
    world.gone(job, "stopped", message="Ray's head was started anew")
    first.refresh_from_db()
    assert world.run(job).attempt == attempt
    how = first.exit or {}
    assert how.get("reason", "") == reason
    if reason:
        assert first.reason_text == "Ray's head was started anew. Its program cannot resume from a checkpoint"
        assert (how["nodes_fault"], how["alleged"]) == (False, False)
    check_invariants(world)
