"""What the portal does where a runner does not keep its job's max_duration."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from portal.execution import executors
from portal.jobs.models import Command, Job, JobEvent, Run
from portal.lifecycle import job_limits
from portal.rounds import tasks
from scheduling.errors import ExecutorError
from scheduling.lifecycle import State
from tests.portal.api_calls import Api
from tests.portal.world import World, check_invariants

pytestmark = pytest.mark.django_db


def trained_for(world: World, seconds: float, **keys: Any) -> Job:
    """A job with so many seconds of training behind it, in this launch."""
    job = world.submit(**keys)
    world.train(job)
    world.round()
    assert world.state(job) is State.RUNNING
    world.checkpoint(job, 300)
    began = timezone.now() - timedelta(seconds=seconds)
    Run.objects.filter(job=job).update(state_since=began, ready_at=began, running_s=0.0)
    return job


def end_overdue(world: World) -> None:
    job_limits.end_overdue(cluster_id=world.cluster.pk, now=timezone.now())


def test_a_run_far_beyond_its_max_duration_is_ended(world: World) -> None:
    job = trained_for(world, 900, max_duration=600)
    end_overdue(world)
    run = world.run(job)
    assert run.exit
    assert (State(run.state), run.reason_token, run.exit["reason"]) == (State.FAILED, "TIME_LIMIT", "time_limit")
    assert "last checkpoint" in run.exit["message"]
    assert run.attempt == 1
    assert (Command.Verb.KILL, 1) in world.open_commands()
    world.gone(job, "signal", signal=9)
    assert world.state(job) is State.FAILED
    check_invariants(world)


def test_its_runner_has_time_to_end_it_itself(world: World) -> None:
    job = trained_for(world, 660, max_duration=600)
    end_overdue(world)
    assert world.state(job) is State.RUNNING


def test_other_jobs_are_left_alone(world: World) -> None:
    job = trained_for(world, 100_000)
    end_overdue(world)
    assert world.state(job) is State.RUNNING


def test_earlier_launches_count(world: World) -> None:
    job = trained_for(world, 300, max_duration=600)
    Run.objects.filter(job=job).update(running_s=600.0)
    end_overdue(world)
    assert world.state(job) is State.FAILED


def test_a_lowered_limit_counts_from_the_change(world: World) -> None:
    job = trained_for(world, 5_000, max_duration=36_000)
    assert Api(world.user).patch(f"jobs/{job.number}", {"max_duration": 600}).status == 200
    end_overdue(world)
    assert world.state(job) is State.RUNNING
    JobEvent.objects.filter(kind="changed").update(at=timezone.now() - timedelta(minutes=5))
    end_overdue(world)
    assert world.state(job) is State.FAILED


@pytest.mark.parametrize(("answers", "state"), [(True, State.FAILED), (False, State.RUNNING)])
def test_nothing_is_ended_while_nobody_knows_what_runs(
    world: World, monkeypatch: pytest.MonkeyPatch, answers: bool, state: State
) -> None:
    class Executor:
        single_trust_mode = supports_warm_start = False
        isolation_problem = None

        def inventory(self) -> list[Any]:
            if not answers:
                raise ExecutorError("the nodes do not answer", permanent=False)
            return world.node_infos()

        def refresh(self) -> bool:
            return False

        def observe(self, known: object, renewed_at: object) -> list[Any]:
            return []

    monkeypatch.setattr(executors, "executor_for", lambda name: Executor())
    job = trained_for(world, 900, max_duration=600)
    tasks.run_round()
    assert world.state(job) is state
