"""Reports and facts that come late, twice, of another launch or after the end; steps never behind a checkpoint."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from accounts.models import LedgerEntry
from portal.jobs.models import Checkpoint, Command, Hold, Job, JobEvent, MetricPoint, Run
from portal.lifecycle.cancel import cancel_job
from portal.lifecycle.suspend import hold_job, release_job
from portal.reporting import observation, reports, timeouts
from portal.reporting.reports import Report, StaleEpoch, record_report, record_reports
from portal.snapshot.take import take_snapshot
from scheduling.executors.base import ExitInfo, Fact
from scheduling.lifecycle import State
from tests.cases import in_turn
from tests.portal.lifecycle.test_moves_together import change, commit, gpu_ids
from tests.portal.world import World, check_invariants

pytestmark = pytest.mark.django_db


@pytest.fixture
def job(world: World) -> Job:
    job = world.submit(steps=1000, gpus={"min": 1, "max": 1})
    world.train(job)
    timeouts.advance_clock(cluster_id=world.cluster.pk, now=timezone.now())
    return job


# Steps -----------------------------------------------------------------------------------------------------


@in_turn(
    ("reported", "shown"),
    [(0, 40), (39, 40), (40, 40), (41, 41), (999, 999), (1000, 1000), (1001, 1000), (10**9, 1000)],
)
def test_a_step_lies_between_the_checkpoint_and_the_total(world: World, job: Job, reported: int, shown: int) -> None:
    world.checkpoint(job, 40)
    world.report(job, step=reported)
    assert world.run(job).step == shown


def test_a_report_without_a_step_leaves_it(world: World, job: Job) -> None:
    world.report(job, step=70)
    world.report(job)
    assert world.run(job).step == 70


@in_turn(("late", "kept"), [(39, 60), (59, 60), (60, 60), (61, 61)])
def test_a_checkpoint_told_late_sets_nothing_back(world: World, job: Job, late: int, kept: int) -> None:
    world.checkpoint(job, 60)
    world.report(job, step=80)
    Run.objects.update(checkpoint_s=9.0)
    at = timezone.now().timestamp()
    world.report(job, checkpoint={"step": late, "at": at, "seconds": 0.5, "bytes": 7, "path": "p"})
    run = world.run(job)
    assert (run.checkpoint_step, run.step) == (kept, 80)
    assert run.checkpoint_s == (0.5 if late >= 60 else 9.0)
    row = Checkpoint.objects.get(run=run, step=late)
    assert (row.path, row.size_bytes, row.duration_s) == ("p", 7, 0.5)
    assert Checkpoint.objects.count() == (1 if late == 60 else 2)


def test_a_checkpoint_beyond_the_step_moves_the_step(world: World, job: Job) -> None:
    world.report(job, step=10)
    at = timezone.now().timestamp()
    world.report(job, checkpoint={"step": 30, "at": at})
    assert (world.run(job).step, world.run(job).checkpoint_step) == (30, 30)


@in_turn("then", ["moved", "held"])
def test_what_came_after_the_last_checkpoint_is_shown_no_more_when_it_stops(world: World, job: Job, then: str) -> None:
    world.checkpoint(job, 40)
    world.report(job, step=90)
    if then == "moved":
        commit(world, [change(job, "rescale", gpu_ids()[1:3])])
    else:
        hold_job(actor=world.user, job=job)
    world.gone(job)
    run = world.run(job)
    assert State(run.state) is (State.STANDBY if then == "moved" else State.WAITING_FOR_RESOURCE)
    assert (run.step, run.checkpoint_step) == (40, 40)
    check_invariants(world)


def test_a_checkpoint_that_was_asked_for_moves_on_and_another_does_not(world: World, job: Job) -> None:
    commit(world, [change(job, "rescale", gpu_ids()[1:3])])
    world.checkpoint(job, 20)
    assert world.state(job) is State.CHECKPOINTING
    world.checkpoint(job, 30, "request")
    assert world.state(job) is State.STOPPING
    event = JobEvent.objects.filter(job=job, to_state=State.STOPPING).get()
    assert (event.detail["step"], event.from_state) == (30, State.CHECKPOINTING)
    world.checkpoint(job, 31, "request")
    assert JobEvent.objects.filter(job=job, to_state=State.STOPPING).count() == 1


def test_a_checkpoint_on_request_of_nobody_is_an_ordinary_one(world: World, job: Job) -> None:
    world.checkpoint(job, 30, "request")
    assert (world.state(job), world.run(job).checkpoint_step) == (State.RUNNING, 30)


# Epochs ----------------------------------------------------------------------------------------------------


def again(world: World, job: Job) -> Run:
    """The job in its second launch."""
    commit(world, [change(job, "rescale", gpu_ids()[1:3])])
    world.checkpoint(job, 20, "request")
    world.gone(job)
    world.round()
    run = world.run(job)
    assert (run.epoch, State(run.state)) == (2, State.LAUNCHING)
    return run


@in_turn("epoch", [0, 1, 3])
def test_a_report_of_another_launch_changes_nothing(world: World, job: Job, epoch: int) -> None:
    run = again(world, job)
    body = {"epoch": epoch, "seq": 10**6, "sent_at": 1.0, "step": 700, "ready_at": 1.0, "sdk": True}
    said = Report.model_validate(body | {"metrics": [{"step": 1, "at": 5.0, "loss": 1.0}]})
    with pytest.raises(StaleEpoch):
        record_report(run_id=run.pk, report=said, now=timezone.now())
    assert record_reports({run.pk: said}, timezone.now()) == {}
    fresh = world.run(job)
    assert (fresh.step, fresh.last_report_seq, State(fresh.state)) == (20, -1, State.LAUNCHING)
    assert not MetricPoint.objects.exists()


@in_turn("kind", ["exited", "absent"])
def test_a_fact_of_another_launch_ends_none_but_its_holds(world: World, job: Job, kind: Any) -> None:
    run = again(world, job)
    info = ExitInfo("user_error", exit_code=1) if kind == "exited" else None
    for epoch in (1, 3):
        observation.record_fact(Fact(str(run.pk), epoch, kind, timezone.now().timestamp(), info))
    fresh = world.run(job)
    assert (State(fresh.state), fresh.epoch) == (State.LAUNCHING, 2)
    assert Hold.objects.filter(run=run, epoch=2, during__upper_inf=True).count() == 2
    assert Command.objects.filter(run=run, epoch=2, verb=Command.Verb.LAUNCH, closed_at=None).exists()
    check_invariants(world)


def test_an_absence_before_the_launch_was_carried_out_means_nothing(world: World, job: Job) -> None:
    run = again(world, job)
    observation.record_fact(Fact(str(run.pk), 2, "absent", timezone.now().timestamp()))
    assert world.state(job) is State.LAUNCHING
    Command.objects.filter(run=run, epoch=2).update(closed_at=timezone.now())
    observation.record_fact(Fact(str(run.pk), 2, "absent", timezone.now().timestamp()))
    assert State(Run.objects.get(pk=run.pk).state) is State.FAILED


def test_an_absence_from_the_moment_of_the_last_report_counts(world: World, job: Job) -> None:
    run = world.run(job)
    heard_at = timezone.now().replace(microsecond=0)
    Run.objects.filter(pk=run.pk).update(last_report_at=heard_at)
    observation.record_fact(Fact(str(run.pk), 1, "absent", (heard_at - timedelta(seconds=1)).timestamp()))
    assert world.state(job) is State.RUNNING
    observation.record_fact(Fact(str(run.pk), 1, "absent", heard_at.timestamp()))
    assert State(Run.objects.get(pk=run.pk).state) is State.FAILED


def test_an_unknown_run_is_no_error(world: World) -> None:
    nobody = "00000000-0000-7000-8000-000000000000"
    observation.record_fact(Fact(nobody, 1, "exited", 1.0, ExitInfo("done")))


@in_turn(("seconds", "counts"), [(-3_600, False), (0, False), (3_600, True)])
def test_a_hold_ends_after_it_began_whatever_clock_says_so(world: World, job: Job, seconds: int, counts: bool) -> None:
    hold = Hold.objects.get(run=world.run(job))
    began = hold.started_at
    at = began + timedelta(seconds=seconds)
    observation.record_fact(Fact(str(hold.run_id), 1, "exited", at.timestamp(), ExitInfo("done", step=1000)))
    hold.refresh_from_db()
    assert hold.during.upper is not None
    assert hold.during.upper - began == (timedelta(hours=1) if counts else timedelta(microseconds=1))
    assert LedgerEntry.objects.get().held_us == (3_600 * 10**6 if counts else 1)


# Repeats and the end ---------------------------------------------------------------------------------------


def test_a_repeat_changes_nothing_and_renews_the_lease(world: World, job: Job) -> None:
    world.report(job, step=50)
    run, seq = world.run(job), world.seq
    assert run.last_report_seq == seq
    long_ago, later = timezone.now() - timedelta(hours=1), timezone.now() + timedelta(hours=1)
    for number, now, heard_at in ((seq, long_ago, run.last_report_at), (seq, later, later), (seq - 1, long_ago, later)):
        said = Report(epoch=1, seq=number, sent_at=1.0, step=70, notices=["again"])
        record_report(run_id=run.pk, report=said, now=now)
        assert world.run(job).last_report_at == heard_at
    fresh = world.run(job)
    assert (fresh.step, fresh.last_report_seq, fresh.last_report_at) == (50, seq, later)
    assert not JobEvent.objects.filter(kind="notice").exists()
    record_report(run_id=run.pk, report=Report(epoch=1, seq=seq + 1, sent_at=1.0, step=71), now=long_ago)
    fresh = world.run(job)
    assert (fresh.step, fresh.last_report_at) == (71, later)  # never back


def test_after_the_end_nothing_is_taken_and_the_order_is_to_leave(world: World, job: Job) -> None:
    world.report(job, step=50)
    cancel_job(user=world.user, job=job)
    before = world.run(job)
    order = world.report(
        job,
        step=90,
        checkpoint={"step": 90, "at": 1.0},
        notices=["still here"],
        metrics=[{"step": 1, "at": 5.0, "loss": 1.0}],
        links={"x": "https://example.org"},
    )
    assert order == Command.Verb.KILL
    after = world.run(job)
    assert (after.step, after.checkpoint_step, after.links, after.last_report_seq) == (
        50,
        0,
        {},
        before.last_report_seq,
    )
    assert not Checkpoint.objects.exists()
    assert not MetricPoint.objects.exists()
    assert not JobEvent.objects.filter(kind="notice").exists()


@in_turn(
    ("state", "order"),
    [
        (State.LAUNCHING, None),
        (State.RUNNING, None),
        (State.RUNNING_PROTECTED, None),
        (State.CHECKPOINTING, Command.Verb.CHECKPOINT_AND_STOP),
        (State.STOPPING, Command.Verb.CHECKPOINT_AND_STOP),
        (State.STANDBY, Command.Verb.KILL),
        (State.WAITING_FOR_RESOURCE, Command.Verb.KILL),
        (State.CANCELLED, Command.Verb.KILL),
    ],
)
def test_what_a_runner_is_told_follows_from_the_state(world: World, job: Job, state: State, order: str | None) -> None:
    Run.objects.filter(job=job).update(state=state)
    assert world.report(job) == order


@in_turn(
    ("info", "state"),
    [(ExitInfo("done", step=1000), State.FINISHED), (ExitInfo("user_error", exit_code=1), State.FAILED)],
)
def test_a_fact_told_again_is_no_second_end(world: World, info: ExitInfo, state: State) -> None:
    job = world.submit(gpus={"min": 1, "max": 1}, retry={"limit": 0})
    world.train(job)
    run = world.run(job)
    for _ in range(2):
        observation.record_fact(Fact(str(run.pk), 1, "exited", timezone.now().timestamp() + 1, info))
    assert world.state(job) is state
    assert Run.objects.filter(job=job).count() == 1
    assert LedgerEntry.objects.count() == 1


# Readiness -------------------------------------------------------------------------------------------------


@in_turn(("ready_s", "launch_s"), [(-50, 0), (20, 20), (100, 100), (500, 100)])
def test_readiness_lies_between_the_launch_and_now(world: World, ready_s: float, launch_s: float) -> None:
    job = world.submit()
    world.round()
    began = timezone.now() - timedelta(seconds=100)
    Run.objects.filter(job=job).update(state_since=began)
    now = began + timedelta(seconds=100)
    said = Report(epoch=1, seq=1, sent_at=1.0, ready_at=(began + timedelta(seconds=ready_s)).timestamp())
    record_report(run_id=world.run(job).pk, report=said, now=now)
    run = world.run(job)
    assert run.launch_s == pytest.approx(launch_s, abs=0.01)
    assert run.ready_at is not None
    assert run.protected_until == run.ready_at + timedelta(seconds=3 * (run.launch_s or 0))
    assert (State(run.state), run.has_trained) == (State.RUNNING_PROTECTED, True)


def test_readiness_said_twice_counts_once(world: World, job: Job) -> None:
    ready_at = world.run(job).ready_at
    world.report(job, ready_at=timezone.now().timestamp())
    assert (world.run(job).ready_at, world.state(job)) == (ready_at, State.RUNNING)


def test_links_are_kept_up_to_their_number_and_only_addresses(world: World, job: Job) -> None:
    many = {f"l{i}": "https://example.org" for i in range(reports.MAX_LINKS)}
    world.report(job, links={"bad": "javascript:alert(1)", "empty": "https://", "good": "http://example.org"})
    assert world.run(job).links == {"good": "http://example.org"}
    world.report(job, links=many)
    assert world.run(job).links == {"good": "http://example.org"}  # one too many
    world.report(job, links=dict(list(many.items())[1:]))
    assert len(world.run(job).links) == reports.MAX_LINKS


# Time ------------------------------------------------------------------------------------------------------


def test_each_hold_of_a_person_puts_the_job_off_by_its_length(world: World) -> None:
    job = world.submit()
    for hours in (1, 2):
        hold_job(actor=world.user, job=job)
        Job.objects.filter(pk=job.pk).update(held_at=timezone.now() - timedelta(hours=hours))
        release_job(actor=world.user, job=Job.objects.get(pk=job.pk))
    fresh = Job.objects.get(pk=job.pk)
    assert fresh.eligible_at is not None
    assert fresh.eligible_at - fresh.submitted_at == pytest.approx(timedelta(hours=3), abs=timedelta(minutes=1))


@in_turn(("ran_s", "left_s"), [(0.0, 3_600.0), (1_000.0, 2_600.0), (3_600.0, 0.0), (4_000.0, 0.0)])
def test_a_time_limit_counts_what_was_trained(world: World, ran_s: float, left_s: float) -> None:
    job = world.submit(max_duration=3_600)
    world.round()
    Run.objects.filter(job=job).update(running_s=ran_s)
    world.cluster.refresh_from_db()
    (seen,) = take_snapshot(world.cluster, timezone.now()).snapshot.jobs
    assert seen.time_limit_s == left_s
