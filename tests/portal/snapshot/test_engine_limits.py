"""A launch that the engine's own time limit ended: it goes on where it can, and has failed where it cannot."""

from __future__ import annotations

from typing import Any

import pytest

from portal.jobs.models import Job, JobEvent, Run
from scheduling.lifecycle import State
from tests.portal.world import World, check_invariants

pytestmark = pytest.mark.django_db


def trains(world: World, *, sdk: bool, **keys: Any) -> Job:
    job = world.submit(gpus=1, **keys)
    world.round()
    if sdk:
        world.ready(job)
    else:
        world.report(job, ready_at=1.0, sdk=False)
    world.unprotect(job)
    return job


@pytest.mark.parametrize("reason", ["stopped", "time_limit"])
def test_a_program_that_cannot_resume_has_failed_and_is_told_what_to_do(world: World, reason: str) -> None:
    job = trains(world, sdk=False, retry={"limit": 3, "on": ["user_error", "launch_failed", "node_failure"]})
    world.gone(job, reason, engine_limit=True)
    run = Run.objects.get(job=job)
    assert run.exit
    assert (run.state, run.reason_token, run.exit["reason"]) == (State.FAILED, "TIME_LIMIT", "time_limit")
    assert "The engine's time limit ended it" in run.reason_text
    assert "max_duration" not in run.reason_text
    check_invariants(world)


@pytest.mark.parametrize("reason", ["stopped", "time_limit"])
@pytest.mark.parametrize("sdk", [True, False])
def test_one_that_can_goes_on(world: World, sdk: bool, reason: str) -> None:
    job = trains(world, sdk=sdk, **({} if sdk else {"restartable": True}))
    world.gone(job, reason, engine_limit=True, message="Slurm job 7 reached its time limit in Slurm")
    run = world.run(job)
    assert (run.state, run.attempt) == (State.WAITING_FOR_RESOURCE, 1)
    [event] = JobEvent.objects.filter(run=run, kind="REALLOCATED")
    assert event.text.endswith("stopped with a checkpoint (Slurm job 7 reached its time limit in Slurm)")
    world.round()
    assert (world.state(job), world.run(job).epoch) == (State.LAUNCHING, 2)


def test_the_jobs_own_limit_is_another(world: World) -> None:
    job = trains(world, sdk=True)
    world.gone(job, "time_limit")
    run = Run.objects.get(job=job)
    assert run.state == State.FAILED
    assert "max_duration" in run.reason_text


def test_a_stop_that_was_asked_for_is_none(world: World) -> None:
    job = trains(world, sdk=False, restartable=True)
    world.submit(gpus=4)
    Run.objects.filter(job=job).update(state=State.CHECKPOINTING)
    world.gone(job, "stopped", engine_limit=True)
    assert world.run(job).state != State.FAILED
