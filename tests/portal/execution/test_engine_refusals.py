"""A launch that the engine refuses: for good it ends the job with one reason, for the moment it costs nothing."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from portal.execution import commands
from portal.jobs.models import Command, Hold, Job, Run
from scheduling.errors import ExecutorError
from scheduling.lifecycle import State
from tests.portal.world import World, check_invariants

pytestmark = pytest.mark.django_db
BUSY = ExecutorError("Slurm refused the launch: Socket timed out", permanent=False, by_engine=True)
REFUSED = ExecutorError(
    "Slurm refused the launch: Invalid qos specification. Name another.", permanent=True, by_engine=True
)


@pytest.fixture
def world() -> World:
    return World()


def sent(world: World, error: ExecutorError, attempts: int = 0) -> Command:
    command = Command.objects.select_related("run").get(closed_at=None, verb=Command.Verb.LAUNCH)
    command.attempts = attempts
    commands._send_failed(command, error)
    return command


def launching(world: World, **keys: Any) -> Job:
    job = world.submit(gpus=2, retry={"limit": 3}, **keys)
    world.round()
    assert world.state(job) is State.LAUNCHING
    return job


def test_a_refusal_for_good_ends_the_job_with_its_words_and_no_attempt_more(world: World) -> None:
    job = launching(world)
    sent(world, REFUSED)
    run = world.run(job)
    assert (run.state, run.attempt) == (State.FAILED, 1)
    assert run.reason_text == str(REFUSED)
    check_invariants(world)


def test_one_that_other_nodes_may_not_give_is_tried_again(world: World) -> None:
    job = launching(world)
    sent(world, ExecutorError("Requested node configuration is not available", permanent=True))
    assert world.run(job).attempt == 2


def test_what_passes_uses_up_nothing_however_long_it_takes(world: World) -> None:
    job = launching(world)
    began = timezone.now() - timedelta(seconds=900)
    Hold.objects.update(during=(began, None))
    Run.objects.update(state_since=began)
    before = timezone.now()
    sent(world, BUSY, attempts=5)
    run = world.run(job)
    assert (run.state, run.attempt) == (State.LAUNCHING, 1)
    assert "Socket timed out" in run.reason_text
    assert run.state_since >= before
    assert not Hold.objects.filter(during__startswith__lt=before).exists()
    world.round()
    assert world.state(job) is State.LAUNCHING
    sent(world, BUSY, attempts=12)
    run = world.run(job)
    assert run.attempt == 1
    assert run.state != State.FAILED
    check_invariants(world)
