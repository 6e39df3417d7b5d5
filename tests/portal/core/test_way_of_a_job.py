"""The way of one job through the services, with the test in the place of nodes and runners."""

from __future__ import annotations

from datetime import datetime, timedelta
from unittest import mock

import pytest
from django.utils import timezone

from portal.execution import commands, executors, launch_request, observe
from portal.jobs.access import described_jobs
from portal.jobs.models import Assignment, Checkpoint, Command, Decision, Hold, Job, JobEvent, Run
from portal.lifecycle import commit_plan
from portal.lifecycle.cancel import JobHasEnded, cancel_job
from portal.readmodels.jobs.summary import describe_jobs
from portal.reporting import acceptance, observation, reports, timeouts
from portal.snapshot.take import take_snapshot
from scheduling.engine.rounds import plan_round
from scheduling.errors import ExecutorError
from scheduling.executors.base import ExitInfo, Fact
from scheduling.lifecycle import State
from scheduling.policies import load_policy
from tests.portal.world import World, check_invariants

pytestmark = pytest.mark.django_db


def test_a_job_runs_from_submission_to_the_ledger(world: World) -> None:
    job = world.submit()
    assert world.state(job) is State.WAITING_FOR_INITIAL_CONTACT
    world.round()
    assert world.state(job) is State.LAUNCHING
    assert world.gpus(job) == 4
    assert world.open_commands() == {("launch", 1)}
    world.ready(job)
    assert world.state(job) is State.RUNNING_PROTECTED
    world.report(job, step=1000)
    world.gone(job, "done", step=1000)
    assert world.state(job) is State.FINISHED
    assert world.open_commands() == set()
    assert not Hold.objects.filter(during__upper_inf=True).exists()
    check_invariants(world)


def test_an_arrival_shrinks_the_running_job_through_a_checkpoint(world: World) -> None:
    first = world.submit()
    world.train(first)
    second = world.submit()
    world.round()
    assert world.state(first) is State.CHECKPOINTING
    assert world.state(second) is State.STANDBY
    assert ("checkpoint_and_stop", 1) in world.open_commands()
    check_invariants(world)
    world.checkpoint(first, 120, reason="request")
    assert world.state(first) is State.STOPPING
    world.gone(first)
    assert world.state(first) is State.STANDBY
    world.round()
    assert world.state(first) is State.LAUNCHING
    assert world.state(second) is State.LAUNCHING
    assert world.run(first).epoch == 2
    assert world.run(first).step == 120
    assert world.gpus(first) + world.gpus(second) == 4
    assert world.run(first).rescales == 1
    check_invariants(world)


def test_protection_keeps_a_job_where_it_is(world: World) -> None:
    first = world.submit()
    world.round()
    Run.objects.filter(pk=world.run(first).pk).update(state_since=timezone.now() - timedelta(seconds=60))
    world.ready(first)
    world.submit()
    world.round()
    assert world.state(first) is State.RUNNING_PROTECTED
    assert world.run(first).launch_s == pytest.approx(60, abs=5)


def test_reports_of_an_older_epoch_are_refused(world: World) -> None:
    job = world.submit()
    world.round()
    with pytest.raises(reports.StaleEpoch):
        world.report(job, epoch=0, step=10)
    with pytest.raises(reports.StaleEpoch):
        world.report(job, epoch=2, step=10)


def test_a_repeated_report_changes_nothing(world: World) -> None:
    job = world.submit()
    world.round()
    world.ready(job)
    world.report(job, step=50)
    world.seq -= 2
    world.report(job, step=10)
    assert world.run(job).step == 50


def test_a_failed_run_is_tried_again_from_its_checkpoint(world: World) -> None:
    job = world.submit(retry={"limit": 1, "backoff_s": 0, "on": ["user_error", "signal"]})
    world.train(job)
    world.checkpoint(job, 300)
    world.report(job, step=390)
    world.gone(job, "user_error", exit_code=3, message="ValueError: bad data")
    retry = world.run(job)
    assert retry.attempt == 2
    assert (retry.step, retry.checkpoint_step) == (300, 300)
    assert "exit code 3" in retry.reason_text
    world.train(job)
    world.gone(job, "signal", signal=9, message="worker 0 was killed")
    assert world.state(job) is State.FAILED
    assert world.run(job).reason_text.endswith(" worker 0 was killed. It was tried again once.")
    check_invariants(world)


def test_a_time_limit_is_not_retried(world: World) -> None:
    job = world.submit()
    world.train(job)
    world.gone(job, "time_limit")
    assert world.state(job) is State.FAILED


def test_a_cancelled_job_holds_its_gpus_until_its_processes_are_gone(world: World) -> None:
    job, other = world.submit(), world.submit()
    world.train(job)
    cancel_job(user=world.user, job=job)
    assert world.state(job) is State.CANCELLED
    assert ("kill", 1) in world.open_commands()
    assert Hold.objects.filter(run=world.run(job), during__upper_inf=True).exists()
    world.gone(job, "signal", signal=9)
    assert not Hold.objects.filter(run=world.run(job), during__upper_inf=True).exists()
    world.round()
    assert world.gpus(other) > 0
    assert cancel_job(user=world.user, job=job).pk == job.pk
    check_invariants(world)


def test_a_finished_job_cannot_be_cancelled(world: World) -> None:
    job = world.submit()
    world.train(job)
    world.gone(job, "done", step=1000)
    with pytest.raises(JobHasEnded):
        cancel_job(user=world.user, job=job)


def test_a_stale_round_applies_nothing(world: World) -> None:
    job = world.submit()
    acceptance.accept_waiting(cluster_id=world.cluster.pk, problem_of=lambda run: None, now=timezone.now())
    world.cluster.refresh_from_db()
    view = take_snapshot(world.cluster, timezone.now())
    plan = plan_round(view.snapshot, load_policy("f_scheduling"))
    world.round()
    with pytest.raises(commit_plan.StaleRound):
        commit_plan.commit_plan(
            cluster_id=world.cluster.pk,
            round_epoch=view.cluster.round_epoch,
            plan=plan,
            seen=view.seen,
            now=timezone.now(),
        )
    assert Assignment.objects.filter(run=world.run(job)).count() == 4


def test_a_move_of_a_job_that_changed_since_is_left_out(world: World) -> None:
    job = world.submit()
    acceptance.accept_waiting(cluster_id=world.cluster.pk, problem_of=lambda run: None, now=timezone.now())
    world.cluster.refresh_from_db()
    view = take_snapshot(world.cluster, timezone.now())
    plan = plan_round(view.snapshot, load_policy("f_scheduling"))
    cancel_job(user=world.user, job=job)
    applied = commit_plan.commit_plan(
        cluster_id=world.cluster.pk, round_epoch=view.cluster.round_epoch, plan=plan, seen=view.seen, now=timezone.now()
    )
    assert applied == []
    assert not Assignment.objects.exists()


def test_a_lost_node_sends_its_job_elsewhere(world: World) -> None:
    world.nodes["b"] = 4
    world.reachable["b"] = True
    world.inventory()
    job = world.submit(gpus={"min": 1, "max": 2})
    world.train(job)
    where = Hold.objects.filter(run=world.run(job)).values_list("accelerator__node__name", flat=True)[0]
    world.reachable[where] = False
    world.inventory()
    world.round()
    assert world.state(job) is State.CHECKPOINTING
    world.gone(job, "runner_lost")
    world.round()
    assert world.state(job) is State.LAUNCHING
    now_on = Hold.objects.filter(run=world.run(job), during__upper_inf=True)
    assert set(now_on.values_list("accelerator__node__name", flat=True)) == {"a", "b"} - {where}
    check_invariants(world)


def test_an_overdue_launch_fails_and_is_retried(world: World) -> None:
    job = world.submit()
    world.round()
    Run.objects.filter(pk=world.run(job).pk).update(state_since=timezone.now() - timedelta(hours=1))
    timeouts.advance_clock(cluster_id=world.cluster.pk, now=timezone.now())
    assert world.run(job).attempt == 2
    assert ("kill", 1) in world.open_commands()


def test_an_overdue_checkpoint_gives_up_and_goes_on_from_the_last_one(world: World) -> None:
    job = world.submit()
    world.train(job)
    world.checkpoint(job, 70)
    world.submit()
    world.round()
    Run.objects.filter(pk=world.run(job).pk).update(state_since=timezone.now() - timedelta(hours=1))
    timeouts.advance_clock(cluster_id=world.cluster.pk, now=timezone.now())
    assert world.state(job) is State.STOPPING
    world.gone(job, "signal", signal=9)
    assert world.state(job) is State.STANDBY
    assert world.run(job).step == 70
    check_invariants(world)


def test_events_and_decisions_tell_what_happened(world: World) -> None:
    job = world.submit()
    world.train(job)
    world.checkpoint(job, 10)
    kinds = list(JobEvent.objects.filter(job=job).order_by("pk").values_list("kind", flat=True))
    assert kinds == ["submitted", "ACCEPTED", "ASSIGNED", "GPUS_FREE", "FIRST_STEP_READY"]
    assert Decision.objects.get().plan["moves"][0]["job_id"] == str(job.pk)
    assert Checkpoint.objects.get().step == 10


def test_commands_are_closed_by_observations_only(world: World) -> None:
    job = world.submit()
    world.round()
    assert Command.objects.get().closed_at is None
    run = world.run(job)
    observation.record_fact(Fact(str(run.pk), 1, "absent", timezone.now().timestamp()))
    assert world.state(job) is State.LAUNCHING
    observation.record_fact(Fact(str(run.pk), 1, "alive", timezone.now().timestamp()))
    assert Command.objects.get().closed_at is not None


def test_one_unreadable_exit_does_not_stop_the_facts_of_others(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    record = observation.record_fact

    def refuse(fact: Fact) -> None:
        if fact.exit and fact.exit.message == "unreadable":
            raise ValueError
        record(fact)

    monkeypatch.setattr(observation, "record_fact", refuse)
    first, second = world.submit(gpus={"min": 1, "max": 2}), world.submit(gpus={"min": 1, "max": 2})
    world.train(first)
    now = timezone.now().timestamp()
    poisoned = ExitInfo("user_error", exit_code=1, message="unreadable")
    for job, info in ((first, poisoned), (second, ExitInfo("done", step=1000))):
        observe.take_in(Fact(str(world.run(job).pk), 1, "exited", now, info))
    assert world.run(first).attempt == 2
    assert world.state(second) is State.FINISHED
    check_invariants(world)


def test_earlier_attempts_count_towards_max_duration(world: World) -> None:
    job = world.submit(max_duration=3600)
    world.round()
    Run.objects.filter(pk=world.run(job).pk).update(running_s=3000.0)
    assert launch_request.launch_request(world.run(job), 1).max_duration_s == 600


def test_a_gpu_that_is_no_longer_reported_does_not_stop_the_rounds(world: World) -> None:
    job = world.submit()
    world.train(job)
    world.nodes["a"] = 2
    world.inventory()
    assert world.round() is not None
    assert world.state(job) is State.CHECKPOINTING
    world.gone(job)
    world.round()
    assert world.gpus(job) <= 2


def test_a_job_without_an_end_in_sight_is_described(world: World) -> None:
    job = world.submit(steps=10**12)
    world.train(job)
    described = describe_jobs([Job.objects.select_related("run", "project", "owner").get(pk=job.pk)], timezone.now())
    assert described[0]["expected_end_at"] is None
    Job.objects.filter(pk=job.pk).update(max_duration_s=600)
    now = timezone.now()
    (found,) = describe_jobs(described_jobs().filter(pk=job.pk), now)
    left = [datetime.fromisoformat(found[f"expected_end_{part}at"]) - now for part in ("", "low_", "high_")]
    assert max(left) == min(left)
    assert timedelta(seconds=590) < left[0] <= timedelta(seconds=600)
    Job.objects.filter(pk=job.pk).update(total_steps=2)
    (found,) = describe_jobs(described_jobs().filter(pk=job.pk), now)
    assert datetime.fromisoformat(found["expected_end_at"]) - now < timedelta(seconds=60)


@pytest.mark.parametrize(
    ("permanent", "state", "words"),
    [(False, State.LAUNCHING, "Launch 1 of at most"), (True, State.FAILED, "the disk is read-only")],
)
def test_a_launch_that_fails_says_so(
    world: World, monkeypatch: pytest.MonkeyPatch, permanent: bool, state: State, words: str
) -> None:
    class Broken:
        def launch(self, request: object) -> None:
            raise ExecutorError("the disk is read-only", permanent=permanent)

    monkeypatch.setattr(executors, "executor_for", lambda name: Broken())
    job = world.submit(retry={"limit": 0})
    world.round()
    commands.send_command(Command.objects.get(run=world.run(job), closed_at=None).pk)
    run = world.run(job)
    assert State(run.state) is state
    assert words in (run.exit["message"] if run.exit else run.reason_text)


def test_a_launch_that_fails_after_it_was_seen_is_sent_again_and_the_node_is_not_blamed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = world.submit()
    world.round()
    run = world.run(job)
    launch = Command.objects.filter(run=run, verb=Command.Verb.LAUNCH)
    observation.record_fact(Fact(str(run.pk), 1, "alive", timezone.now().timestamp()))  # it is under way
    assert not launch.filter(closed_at=None).exists()
    error = "Ray has not got these GPUs free: something else holds them"
    launch.update(error=error, attempts=1)
    observation.record_fact(Fact(str(run.pk), 1, "absent", timezone.now().timestamp()))
    assert world.state(job) is State.LAUNCHING
    assert launch.filter(closed_at=None).exists()
    executor = mock.Mock()
    monkeypatch.setattr(executors, "executor_for", lambda name: executor)
    launch.update(next_attempt_at=timezone.now())
    commands.send_command(launch.get().pk)
    executor.launch.assert_called_once()
    launch.update(closed_at=timezone.now())  # it was launched, and is gone
    observation.record_fact(Fact(str(run.pk), 1, "absent", timezone.now().timestamp()))
    assert Run.objects.get(job=job, attempt=1).state == State.FAILED


def test_a_checkpoint_beyond_the_last_step_is_left_out_and_the_job_ends_well(world: World) -> None:
    job = world.submit(steps=1000)
    world.train(job)
    world.checkpoint(job, 900)
    world.checkpoint(job, 1001)
    run = world.run(job)
    assert (run.checkpoint_step, run.step) == (900, 1000)
    assert list(Checkpoint.objects.values_list("step", flat=True)) == [900]
    world.gone(job, "done", step=1000)
    assert world.state(job) is State.FINISHED
