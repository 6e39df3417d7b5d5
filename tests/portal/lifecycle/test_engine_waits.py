"""A launch that waits in its engine's own queue: said, not billed, and after a stated time placed anew."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from portal.jobs.models import Command, Hold, Job, JobEvent, Run
from portal.lifecycle import engine_waits
from portal.reporting import timeouts
from scheduling.executors.base import Fact
from scheduling.lifecycle import State
from tests.portal.api_calls import Api
from tests.portal.world import World, check_invariants

pytestmark = pytest.mark.django_db


def launched(world: World, **keys: Any) -> Job:
    job = world.submit(gpus=1, **keys)
    world.round()
    assert world.state(job) is State.LAUNCHING
    return job


def look(world: World, job: Job, waits: str, at_s: float = 0.0, epoch: int | None = None) -> None:
    run = world.run(job)
    at = timezone.now().timestamp() + at_s
    engine_waits.note_waits([Fact(str(run.pk), epoch or run.epoch, "alive", at, waits=waits)], world.cluster.pk)


def began_s(world: World, job: Job) -> float:
    """Since when it holds its GPU, in seconds from now."""
    hold = Hold.objects.get(run=world.run(job), during__upper_inf=True)
    return (hold.started_at - timezone.now()).total_seconds()


def test_what_waits_says_so_and_is_not_billed_until_it_begins(world: World) -> None:
    job = launched(world)
    look(world, job, "waits in Slurm (Resources)", at_s=50)
    look(world, job, "waits in Slurm (Resources)", at_s=100)
    assert began_s(world, job) == pytest.approx(100, abs=10)
    assert JobEvent.objects.filter(kind="engine_waits").count() == 1
    answer = Api(world.user).get(f"jobs/{job.number}").json
    assert answer["reason"]["text"].startswith("Waits in Slurm (Resources). ")
    assert (answer["state"], float(answer["cost"]["so_far"])) == ("starting", 0.0)
    look(world, job, "", at_s=110)
    run = world.run(job)
    assert (run.engine_waits, run.engine_waits_since) == ("", None)
    look(world, job, "", at_s=500)
    assert began_s(world, job) == pytest.approx(100, abs=10)  # it has begun
    check_invariants(world)


def test_an_older_look_takes_nothing_back(world: World) -> None:
    job = launched(world)
    look(world, job, "waits in Slurm", at_s=100)
    look(world, job, "held in Slurm", at_s=20)
    assert began_s(world, job) == pytest.approx(100, abs=10)
    assert world.run(job).engine_waits == "held in Slurm"


def test_the_word_for_an_earlier_launch_is_not_its_own(world: World) -> None:
    job = launched(world)
    look(world, job, "waits in Slurm", epoch=7)
    assert world.run(job).engine_waits == ""
    assert began_s(world, job) == pytest.approx(0, abs=10)


def test_waiting_is_no_launch_that_takes_too_long(world: World) -> None:
    job = launched(world)
    Run.objects.filter(job=job).update(state_since=timezone.now() - timedelta(seconds=599))
    look(world, job, "waits in Slurm")
    later = timezone.now() + timedelta(seconds=500)
    timeouts.advance_clock(cluster_id=world.cluster.pk, now=later)
    assert world.state(job) is State.LAUNCHING
    timeouts.advance_clock(cluster_id=world.cluster.pk, now=timezone.now() + timedelta(seconds=610))
    assert Run.objects.get(job=job, attempt=1).state == State.FAILED


def end_long_waits(world: World, after_s: float) -> None:
    """As if the wait had begun so much earlier."""
    now = timezone.now()
    Run.objects.exclude(engine_waits="").update(engine_waits_since=now - timedelta(seconds=after_s))
    engine_waits.end_long_waits(cluster_id=world.cluster.pk, now=now)


def test_what_waits_for_long_is_placed_anew_and_no_attempt_is_used(world: World, settings: Any) -> None:
    settings.EVENKEEL_ENGINE_WAIT_S = 600.0
    job = launched(world)
    look(world, job, "waits in Slurm")
    end_long_waits(world, 590)
    assert world.state(job) is State.LAUNCHING
    end_long_waits(world, 601)
    assert world.state(job) is State.CHECKPOINTING
    assert (Command.Verb.CHECKPOINT_AND_STOP, 1) in world.open_commands()
    world.gone(job, "stopped")
    run = world.run(job)
    assert (run.state, run.attempt, run.engine_waits) == (State.WAITING_FOR_RESOURCE, 1, "")
    world.round()
    assert (world.state(job), world.run(job).epoch) == (State.LAUNCHING, 2)
    check_invariants(world)


def test_a_wait_that_is_over_ends_nothing(world: World) -> None:
    job = launched(world)
    look(world, job, "waits in Slurm")
    look(world, job, "")
    end_long_waits(world, 100_000)
    assert world.state(job) is State.LAUNCHING


@pytest.mark.parametrize(("restartable", "state"), [(True, State.CHECKPOINTING), (False, State.RUNNING)])
def test_a_suspended_program_is_moved_only_where_it_can_resume(world: World, restartable: bool, state: State) -> None:
    job = launched(world, restartable=restartable)
    world.ready(job)
    world.unprotect(job)
    world.round()
    before = began_s(world, job)
    look(world, job, "suspended in Slurm", at_s=30)
    assert began_s(world, job) == pytest.approx(before, abs=10)  # it has its GPUs
    end_long_waits(world, 100_000)
    assert world.state(job) is state
    world.checkpoint(job, 10)


def test_what_has_ended_is_left_alone(world: World) -> None:
    job = launched(world)
    world.gone(job, "done")
    look(world, job, "waits in Slurm")
    assert world.run(job).engine_waits == ""
