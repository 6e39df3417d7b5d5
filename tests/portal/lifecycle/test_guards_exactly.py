"""Guards of what is seen and planned: of which launch, in which state, until which moment; whom each leaves."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from portal.jobs import access, events
from portal.jobs.loops import LEFT_OUT
from portal.jobs.models import Assignment, Cluster, Command, FailingItem, Hold, Job, JobEvent, Run
from portal.lifecycle import commit_plan, launch_queue, transitions
from portal.lifecycle.cancel import cancel_job
from portal.lifecycle.suspend import hold_job
from portal.lifecycle.transitions import Why
from portal.readmodels.jobs.summary import people_state
from portal.reporting import acceptance, observation, timeouts
from portal.snapshot import run_version
from scheduling.domain import Plan, Reason
from scheduling.executors.base import ExitInfo, Fact
from scheduling.lifecycle import TIME_LIMIT_S, Event, State, coarse_state
from tests.portal.lifecycle.test_moves_together import change, commit, gpu_ids, launch, start
from tests.portal.lifecycle.test_services_exactly import accept, queued
from tests.portal.world import World, check_invariants

SECOND = timedelta(seconds=1)


@pytest.fixture
def job(world: World) -> Job:
    """Trains on one GPU, out of protection."""
    job = queued(world)
    commit(world, [start(job, gpu_ids()[0])])
    launch(world)
    world.ready(job)
    world.unprotect(job)
    timeouts.advance_clock(cluster_id=world.cluster.pk, now=timezone.now())
    return job


def launching(world: World, *gpus: int) -> Job:
    job = queued(world, gpus={"min": 1, "max": 4}, retry={"limit": 0})
    commit(world, [start(job, *gpus)])
    launch(world)
    return job


# What was seen ----------------------------------------------------------------------------------------------


def test_what_was_found_of_a_new_run_is_not_said_of_one_that_has_moved_on(world: World) -> None:
    job = world.submit()

    def problem(run: Run) -> Why:
        cancel_job(user=world.user, job=job)
        return Why("PREPARING", "Its code is on its way.")

    assert acceptance.accept_waiting(cluster_id=world.cluster.pk, problem_of=problem, now=timezone.now()) == []
    run = world.run(job)
    assert (State(run.state), run.reason_token) == (State.CANCELLED, Event.CANCEL.value)


def test_a_retry_says_in_the_queue_what_it_is_a_retry_of(world: World) -> None:
    first, second = world.submit(), world.submit()
    Run.objects.filter(job=first).update(reason_token="RETRY", reason_text="It is tried again.")
    accept(world)
    assert (world.run(first).reason_token, world.run(first).reason_text) == ("RETRY", "It is tried again.")
    assert world.run(second).reason_text == f"#{second.number} {second.name} is in the queue"


def test_only_new_runs_of_the_cluster_are_taken_in(world: World) -> None:
    other = Cluster.objects.create(name="other")
    job, away = queued(world), world.submit()
    Job.objects.filter(pk=away.pk).update(cluster=other)
    asked = list[Run]()

    def problem(run: Run) -> None:
        asked.append(run)

    acceptance.accept_waiting(cluster_id=world.cluster.pk, problem_of=problem, now=timezone.now())
    assert asked == []
    acceptance.accept_waiting(cluster_id=other.pk, problem_of=problem, now=timezone.now())
    assert [run.job_id for run in asked] == [away.pk]
    assert world.state(job) is State.WAITING_FOR_INITIAL_RESOURCE


@pytest.mark.parametrize(("epoch", "said"), [(0, False), (1, True), (2, False)])
def test_why_a_launch_failed_is_said_of_that_launch(world: World, epoch: int, said: bool) -> None:
    job, other = launching(world, gpu_ids()[0]), launching(world, gpu_ids()[1])
    command = Command(run=world.run(job), epoch=epoch, verb=Command.Verb.LAUNCH)
    observation.note_failed_launch(command, "x" * 600)
    run = world.run(job)
    assert (run.reason_token == "LAUNCH_FAILED", run.reason_text == "x" * 500) == (said, said)
    assert world.run(other).reason_token != "LAUNCH_FAILED"


@pytest.mark.parametrize(("after", "state"), [(-SECOND, State.RUNNING_PROTECTED), (timedelta(), State.RUNNING)])
def test_a_protection_ends_at_its_moment(world: World, after: timedelta, state: State) -> None:
    job, other = launching(world, gpu_ids()[0]), launching(world, gpu_ids()[1])
    for one in (job, other):
        world.ready(one)
    until = timezone.now() + timedelta(hours=1)
    Run.objects.filter(job=job).update(protected_until=until)
    Run.objects.filter(job=other).update(protected_until=until + timedelta(hours=1))
    timeouts.advance_clock(cluster_id=Cluster.objects.create(name="other").pk, now=until + SECOND)
    assert world.state(job) is State.RUNNING_PROTECTED
    why = world.run(job).reason_text
    timeouts.advance_clock(cluster_id=world.cluster.pk, now=until + after)
    assert (world.state(job), world.state(other)) == (state, State.RUNNING_PROTECTED)
    assert world.run(job).reason_text == why


LAUNCH_S = TIME_LIMIT_S[State.LAUNCHING] or 0.0
SILENCE = timeouts.FETCHING_SILENCE


@pytest.mark.parametrize(
    ("columns", "ended"),
    [
        ({}, True),
        ({"reason_token": "PREPARING"}, False),
        ({"fetching": "3 of 9 GB", "heard": SILENCE}, False),
        ({"fetching": "3 of 9 GB", "heard": SILENCE + SECOND}, True),
        ({"fetching": "", "heard": SECOND}, True),
    ],
)
def test_a_launch_may_last_while_its_code_or_data_is_on_its_way(
    world: World, columns: dict[str, Any], ended: bool
) -> None:
    job = launching(world, gpu_ids()[0])
    now = timezone.now() + timedelta(days=1)
    values = {"state_since": now - timedelta(seconds=LAUNCH_S + 1)} | columns
    if heard := values.pop("heard", None):
        values["last_report_at"] = now - heard
    Run.objects.filter(job=job).update(**values)
    timeouts.advance_clock(cluster_id=world.cluster.pk, now=now)
    assert world.state(job) is (State.FAILED if ended else State.LAUNCHING)


@pytest.mark.parametrize(("pending", "ended"), [(True, False), (False, True)])
def test_nothing_is_overdue_whose_report_is_still_to_be_taken_in(
    world: World, monkeypatch: pytest.MonkeyPatch, pending: bool, ended: bool
) -> None:
    job = launching(world, gpu_ids()[0])
    run, asked = world.run(job), list[Any]()
    Run.objects.filter(pk=run.pk).update(state_since=timezone.now() - timedelta(days=1))

    def is_pending(*key: Any) -> bool:
        asked.append(key)
        return pending

    monkeypatch.setattr("portal.jobs.spooled_runs.is_pending", is_pending)
    timeouts.advance_clock(cluster_id=world.cluster.pk, now=timezone.now())
    assert world.state(job) is (State.FAILED if ended else State.LAUNCHING)
    assert asked[0] == (run.pk, run.epoch)


@pytest.mark.parametrize(("ago_s", "waits"), [(LAUNCH_S - 1, True), (LAUNCH_S + 1, False)])
def test_who_could_not_move_while_the_engine_was_away_has_its_whole_time(
    world: World, ago_s: float, waits: bool
) -> None:
    job = launching(world, gpu_ids()[0])
    now = timezone.now() + timedelta(days=1)
    Cluster.objects.update(engine_back_at=now - timedelta(seconds=ago_s))
    timeouts.advance_clock(cluster_id=world.cluster.pk, now=now)
    assert world.state(job) is (State.LAUNCHING if waits else State.FAILED)


@pytest.mark.parametrize(("upload_s", "late"), [(0.0, True), (60.0, False)])
def test_a_checkpoint_that_goes_into_a_store_may_take_longer(
    world: World, job: Job, monkeypatch: pytest.MonkeyPatch, upload_s: float, late: bool
) -> None:
    monkeypatch.setattr(timeouts, "upload_s", lambda cluster_id: upload_s)
    transitions.move(world.run(job), Event.REALLOCATED, at=timezone.now(), text="goes")
    limit_s = TIME_LIMIT_S[State.CHECKPOINTING] or 0.0
    now = timezone.now()
    Run.objects.filter(job=job).update(state_since=now - timedelta(seconds=limit_s + 30))
    timeouts.advance_clock(cluster_id=world.cluster.pk, now=now)
    assert world.state(job) is (State.STOPPING if late else State.CHECKPOINTING)
    kills = Command.objects.filter(run__job=job, verb=Command.Verb.KILL)
    assert kills.count() == int(late)


def test_an_end_closes_the_commands_of_its_launch_and_no_others(world: World, job: Job) -> None:
    run, at = world.run(job), timezone.now()
    for epoch in (1, 2):
        Command.objects.create(run=run, epoch=epoch, verb=Command.Verb.KILL)
    closed = Command.objects.create(run=run, epoch=1, verb=Command.Verb.CHECKPOINT_AND_STOP, closed_at=at - SECOND)
    observation.record_fact(Fact(str(run.pk), 1, "exited", at.timestamp() + 1, ExitInfo("done", step=1_000)))
    assert list(Command.objects.filter(closed_at=None).values_list("epoch", "verb")) == [(2, Command.Verb.KILL)]
    closed.refresh_from_db()
    assert closed.closed_at == at - SECOND


@pytest.mark.parametrize("strays", ["2 processes are left.", ""])
def test_an_end_wakes_a_round_once_and_what_was_left_running_is_said_once(
    world: World, job: Job, strays: str, monkeypatch: pytest.MonkeyPatch, django_capture_on_commit_callbacks: Any
) -> None:
    run, at, woken = world.run(job), timezone.now().timestamp() + 1, list[Any]()
    monkeypatch.setattr("portal.core.wake.schedule_round", lambda *after: woken.append(after))
    fact = Fact(str(run.pk), 1, "exited", at, ExitInfo("done", step=1_000), strays=strays)
    for _ in range(2):
        with django_capture_on_commit_callbacks(execute=True):
            observation.record_fact(fact)
        assert len(woken) == 1
    said = [event.text for event in JobEvent.objects.filter(kind="notice")]
    assert said == ([f"#{job.number}: {strays}"] if strays else [])


def test_who_is_gone_without_a_word_has_lost_its_runner(world: World) -> None:
    job = launching(world, gpu_ids()[0])
    Command.objects.update(closed_at=timezone.now())
    run = world.run(job)
    observation.record_fact(Fact(str(run.pk), 1, "absent", timezone.now().timestamp() + 1))
    run = world.run(job)
    assert run.exit is not None
    assert (State(run.state), run.exit["reason"], run.exit["alleged"]) == (State.FAILED, "runner_lost", True)
    check_invariants(world)


@pytest.mark.parametrize("state", [State.RUNNING, State.LAUNCHING])
def test_who_leaves_by_itself_with_a_checkpoint_is_queued_again(world: World, job: Job, state: State) -> None:
    world.checkpoint(job, 40)
    world.report(job, step=90)
    Run.objects.filter(job=job).update(state=state)
    world.gone(job, "stopped", step=90)
    run = world.run(job)
    assert (State(run.state), run.step, world.gpus(job)) == (State.WAITING_FOR_RESOURCE, 40, 0)
    assert Run.objects.filter(job=job).count() == 1
    check_invariants(world)


def test_a_retry_goes_on_where_the_attempt_before_was(world: World, job: Job) -> None:
    world.checkpoint(job, 40)
    world.report(job, step=90)
    Run.objects.filter(job=job).update(launch_s=3.0, checkpoint_s=2.0)
    before = world.run(job)
    world.gone(job, "runner_lost")
    again = world.run(job)
    assert (again.attempt, again.step, again.checkpoint_step) == (2, 40, 40)
    assert (again.has_trained, again.uses_sdk) == (True, True)
    assert (again.launch_s, again.checkpoint_s, again.first_started_at) == (3.0, 2.0, before.first_started_at)
    assert again.not_before is not None
    assert (again.epoch, again.reason_token) == (0, "RETRY")
    assert "from step 40" in again.reason_text
    before.refresh_from_db()
    assert (State(before.state), before.step) == (State.FAILED, 90)


# What is read -----------------------------------------------------------------------------------------------


def test_a_job_is_found_by_the_state_that_it_is_shown_in(world: World) -> None:
    job = world.submit()
    words = {coarse_state(state, rescaling=trained) for state in State for trained in (False, True)}
    for state in State:
        for trained in (False, True):
            Run.objects.filter(job=job).update(state=state, has_trained=trained)
            shown = people_state(world.run(job))
            found = {word for word in words if Job.objects.filter(access.in_people_states([word])).exists()}
            assert found == {shown}, (state, trained)
    assert Job.objects.filter(access.in_people_states(words)).count() == 1
    assert not Job.objects.filter(access.in_people_states([])).exists()


@pytest.mark.parametrize(
    ("columns", "hold", "waits"),
    [
        ({"state": State.WAITING_FOR_INITIAL_RESOURCE}, "", True),
        ({"state": State.WAITING_FOR_RESOURCE}, "", True),
        ({"state": State.WAITING_FOR_INITIAL_CONTACT}, "", False),
        ({"state": State.RUNNING}, "", False),
        ({"state": State.WAITING_FOR_RESOURCE, "reason_token": "dependency"}, "", False),
        ({"state": State.WAITING_FOR_RESOURCE, "reason_token": "capacity"}, "", True),
        ({"state": State.WAITING_FOR_RESOURCE}, "user", False),
    ],
)
def test_who_could_start_waits_for_gpus(world: World, columns: dict[str, Any], hold: str, waits: bool) -> None:
    job = world.submit()
    Run.objects.filter(job=job).update(**columns)
    Job.objects.filter(pk=job.pk).update(hold_kind=hold, held_at=timezone.now())
    assert Job.objects.filter(access.waiting_for_gpus()).exists() is waits


def test_of_one_job_all_that_happened_to_it_is_read_and_nothing_of_others(world: World) -> None:
    job, other = world.submit(), world.submit()
    for one in (job, other):
        events.append(kind="notice", job=one, run=one.run, at=timezone.now(), text=f"of {one.number}")
    found = access.events_of(job)
    assert {event.job_id for event in found} == {job.pk}
    assert found.filter(text=f"of {job.number}").exists()


# Plans ------------------------------------------------------------------------------------------------------


def reasons(world: World, *said: tuple[Job, str]) -> None:
    """A round that moves nobody and says this."""
    runs = {run.job_id: run for run in Run.objects.filter(job__run__isnull=False).select_related("job")}
    seen = {
        str(pk): run_version.RunVersion(run.pk, State(run.state), run.epoch, run.job.project_id)
        for pk, run in runs.items()
    }
    world.cluster.refresh_from_db()
    told = {str(job.pk): Reason(token, f"{token}.", {"n": 1}) for job, token in said}
    commit_plan.commit_plan(
        cluster_id=world.cluster.pk,
        round_epoch=world.cluster.round_epoch,
        plan=Plan((), reasons=told),
        seen=seen,
        now=timezone.now(),
    )


@pytest.mark.parametrize(
    ("state", "stored"),
    [
        (State.WAITING_FOR_INITIAL_RESOURCE, True),
        (State.WAITING_FOR_RESOURCE, True),
        (State.RUNNING, True),
        (State.WAITING_FOR_INITIAL_CONTACT, False),
        (State.LAUNCHING, False),
        (State.STOPPING, False),
        (State.FAILED, False),
    ],
)
def test_a_reason_is_stored_of_who_waits_or_trains(world: World, state: State, stored: bool) -> None:
    job, other = queued(world), queued(world)
    Run.objects.filter(job=job).update(state=state)
    before = world.run(other).reason_text
    reasons(world, (job, "capacity"))
    run = world.run(job)
    assert (run.reason_token, run.reason_detail) == (("capacity", {"n": 1}) if stored else (run.reason_token, {}))
    assert (run.reason_text == "capacity.") is stored
    assert world.run(other).reason_text == before


def test_a_reason_that_stays_is_not_written_again(world: World) -> None:
    job, written = queued(world), list[int]()
    for _ in range(2):
        with CaptureQueriesContext(connection) as captured:
            reasons(world, (job, "capacity"))
        written.append(sum("UPDATE" in one["sql"] and Run._meta.db_table in one["sql"] for one in captured))
    assert written[0] > 0
    assert written[1] == 0


def test_of_a_held_job_it_is_said_who_holds_it(world: World) -> None:
    job, other = queued(world), queued(world)
    hold_job(actor=world.user, job=job)
    text = Job.objects.get(pk=job.pk).hold_text
    reasons(world, (job, "HELD"), (other, "HELD"))
    assert (world.run(job).reason_text, world.run(other).reason_text) == (text, "HELD.")
    reasons(world, (job, "capacity"))
    assert world.run(job).reason_text == "capacity."


def test_jobs_that_are_left_out_say_so_and_those_of_the_snapshot_do_not(world: World) -> None:
    other = Cluster.objects.create(name="other")
    jobs = [queued(world) for _ in range(4)]
    now = timezone.now()
    for job, cluster, minutes in zip(
        jobs, (world.cluster, other, world.cluster, world.cluster), (5, 5, -5, 5), strict=True
    ):
        columns: dict[str, Any] = {"cluster": cluster, "since": now, "last_at": now, "error": "odd"}
        columns["next_attempt_at"] = now + timedelta(minutes=minutes)
        FailingItem.objects.create(loop=LEFT_OUT[0], key=str(job.pk), job=job, **columns)
    seen = world.run(jobs[3])
    present = {str(jobs[3].pk): run_version.RunVersion(seen.pk, State(seen.state), 0, world.project.pk)}
    commit_plan.note_skipped(world.cluster.pk, present)
    assert [world.run(job).reason_token == "LEFT_OUT" for job in jobs] == [True, False, False, False]
    assert "odd" in world.run(jobs[0]).reason_text


def test_a_second_stop_of_a_launch_is_the_first(world: World, job: Job) -> None:
    commit(world, [change(job, "rescale", [gpu_ids()[1]])])
    assert Command.objects.filter(run__job=job, verb=Command.Verb.CHECKPOINT_AND_STOP, epoch=1).count() == 1
    run = world.run(job)
    assert (State(run.state), run.rescales) == (State.CHECKPOINTING, 1)
    world.gone(job)
    commit(world, [change(job, "rescale", [gpu_ids()[2]])])  # before it has started again
    assert (world.run(job).rescales, world.state(job)) == (1, State.STANDBY)
    assert list(Assignment.objects.filter(run=run, during__upper_inf=True).values_list("accelerator", flat=True)) == [
        gpu_ids()[2]
    ]
    check_invariants(world)


def test_who_gives_up_all_of_its_gpus_has_not_changed_its_size(world: World, job: Job) -> None:
    commit(world, [change(job, "preempt", [])])
    run = world.run(job)
    assert (State(run.state), run.rescales, world.gpus(job)) == (State.CHECKPOINTING, 0, 0)


def test_a_launch_is_not_tried_before_its_gpus_are_free(
    world: World, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    newcomer, tried = queued(world), list[Run]()

    def watch(ready: Sequence[Run], now: datetime) -> list[Run]:
        tried.extend(ready)
        return []

    commit(world, [change(job, "preempt", []), start(newcomer, gpu_ids()[0])])
    with monkeypatch.context() as watched:
        watched.setattr(launch_queue, "_write_launches", watch)
        launch(world)
    assert tried == []
    world.gone(job)
    assert [run.job_id for run in launch(world)] == [newcomer.pk]


def test_a_launch_begins_with_nothing_of_the_one_before(world: World, job: Job) -> None:
    world.report(job, step=3, fetching="3 of 9 GB")
    commit(world, [change(job, "rescale", [gpu_ids()[1]])])
    Run.objects.filter(job=job).update(pace_missed=True)
    first_at = world.run(job).first_started_at
    world.gone(job)
    Job.objects.filter(pk=job.pk).update(total_steps=2_000)
    later = timezone.now() + timedelta(hours=1)
    launch(world, later)
    run = world.run(job)
    assert (run.epoch, run.last_report_seq, run.fetching, run.ready_at, run.pace_missed) == (2, -1, "", None, False)
    assert (run.launched_steps, run.first_started_at, run.emulated) == (2_000, first_at, True)
    assert set(Hold.objects.filter(run=run, during__upper_inf=True).values_list("epoch", "accelerator")) == {
        (2, gpu_ids()[1])
    }
