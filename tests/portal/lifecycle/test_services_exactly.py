"""Each branch of what is read, moved, ended and entered: whom it takes, whom it leaves, and what it writes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from django.contrib.auth.models import AnonymousUser
from django.utils import timezone

from accounts.models import Membership, Project, User
from accounts.pricing import PRODUCTS_PER_UNIT
from portal.core.problems import Problems
from portal.core.times import from_posix
from portal.drafts import checks
from portal.drafts.resume_from import Start
from portal.jobs import access
from portal.jobs.loops import Loop, LoopName
from portal.jobs.models import Cluster, Command, FailingItem, Job, JobArray, JobEvent, Run
from portal.lifecycle import commit_plan, job_limits, launch_queue
from portal.lifecycle import transitions as moves
from portal.lifecycle.transitions import Transition, Why
from portal.reporting import acceptance, observation, timeouts
from scheduling.domain import Gang, Move, Plan, Reason
from scheduling.errors import InvalidTransition
from scheduling.executors.base import Fact
from scheduling.lifecycle import TIME_LIMIT_S, Event, State
from tests.cases import in_turn
from tests.portal.lifecycle.test_moves_together import commit, gpu_ids, launch, start
from tests.portal.world import World

NOW = datetime(2026, 1, 7, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)


@pytest.fixture
def world(db: None) -> World:
    return World()


@pytest.fixture
def job(world: World) -> Job:
    job = world.submit(steps=1000, gpus={"min": 1, "max": 1})
    world.train(job)
    timeouts.advance_clock(cluster_id=world.cluster.pk, now=timezone.now())
    return job


def queued(world: World, **keys: Any) -> Job:
    job = world.submit(**{"gpus": {"min": 1, "max": 1}} | keys)
    accept(world)
    return job


def accept(world: World, problem: Why | None = None) -> list[Run]:
    return acceptance.accept_waiting(cluster_id=world.cluster.pk, problem_of=lambda run: problem, now=timezone.now())


# What is read -----------------------------------------------------------------------------------------------


def test_jobs_are_named_by_number_uuid_and_place_in_their_array(world: World) -> None:
    first, other = world.submit(), world.submit()
    world.submit(array={"indices": "3-4"})
    array = JobArray.objects.get()
    third = Job.objects.get(array=array, array_index=3)

    def named(*references: str) -> set[Job]:
        return set(Job.objects.filter(access.jobs_named(references)))

    assert named(str(first.number)) == {first}
    assert named(str(first.pk), str(other.number)) == {first, other}
    assert named(str(other.pk).upper()) == {other}
    assert named(f"{array.number}_3") == {third}
    assert named(str(array.number), f"{array.number}_9", f"{first.number}_3", "x", "", "-1", "9" * 19) == set()
    assert named("".join(chr(0x660 + int(digit)) for digit in str(first.number))) == set()


@in_turn(
    ("role", "archived", "write", "refusal"),
    [
        ("member", False, True, None),
        ("viewer", False, False, None),
        ("viewer", False, True, "You may read jobs of Vision but not change them."),
        ("manager", True, False, None),
        ("manager", True, True, "Vision is archived: its jobs can be read but not changed until it is restored."),
    ],
)
def test_who_may_read_a_job_may_not_always_change_it(
    world: World, role: str, archived: bool, write: bool, refusal: str | None
) -> None:
    job = world.submit(array={"indices": "1-2"})
    array = JobArray.objects.get()
    bo = User.objects.create_user("bo@example.org", "x")
    Membership.objects.create(project=world.project, user=bo, role=role)
    Project.objects.update(archived_at=NOW if archived else None)
    if refusal is None:
        assert access.access_job(bo, str(job.number), write=write) == job
        found, jobs = access.access_array(bo, array.number, write=write)
        assert (found, jobs.count()) == (array, 2)
    else:
        with pytest.raises(PermissionError) as said:
            access.access_job(bo, str(job.number), write=write)
        assert str(said.value) == refusal
        with pytest.raises(PermissionError, match="of this array"):
            access.access_array(bo, array.number, write=write)


def test_what_one_may_not_see_is_not_there(world: World) -> None:
    job = world.submit(array={"indices": "1-2"})
    array = JobArray.objects.get()
    bo = User.objects.create_user("bo@example.org", "x")
    root = User.objects.create_superuser("root@example.org", "x")
    gone = User.objects.create_superuser("gone@example.org", "x", is_active=False)
    for user in (bo, gone, AnonymousUser()):
        assert not access.visible_jobs(user).exists()
        assert not access.visible_arrays(user).exists()
        with pytest.raises(Job.DoesNotExist):
            access.access_job(user, str(job.number))
        with pytest.raises(JobArray.DoesNotExist):
            access.access_array(user, array.number)
    assert access.visible_jobs(root).count() == 2
    assert access.access_array(root, array.number, write=True)[1].count() == 2


def test_an_array_is_named_by_its_number_and_a_job_before_it(world: World) -> None:
    alone = world.submit()
    world.submit(array={"indices": "2,1"})
    array = JobArray.objects.get()
    JobArray.objects.filter(pk=array.pk).update(number=10**17)

    def named(reference: str) -> list[tuple[int, int | None]]:
        return [(job.number, job.array_index) for job in access.named_with_arrays(world.user, reference)]

    assert named(str(alone.number)) == [(alone.number, None)]
    assert [index for _, index in named(str(10**17))] == [1, 2]
    for reference in ("1" + "0" * 18, "x", "", "\u0661" + "\u0660" * 17, "²"):
        assert named(reference) == []


# Moves ------------------------------------------------------------------------------------------------------


@in_turn(
    ("left", "column"),
    [
        (State.WAITING_FOR_RESOURCE, "queueing_s"),
        (State.STANDBY, "launching_s"),
        (State.LAUNCHING, "launching_s"),
        (State.CHECKPOINTING, "launching_s"),
        (State.RUNNING, "running_s"),
        (State.RUNNING_PROTECTED, "running_s"),
    ],
)
@in_turn(("elapsed", "added"), [(7, 7.0), (0, 0.0), (-7, 0.0)])
def test_time_in_a_state_is_counted_under_its_heading(left: State, column: str, elapsed: int, added: float) -> None:
    run = Run(state=left, state_since=NOW, queueing_s=1.0, launching_s=2.0, running_s=3.0)
    before = {"queueing_s": 1.0, "launching_s": 2.0, "running_s": 3.0}[column]
    found = moves._accumulate(run, left, NOW + elapsed * SECOND)
    assert found == {column: before + added}


@in_turn(
    ("state", "event", "why", "expected"),
    [
        (
            State.RUNNING,
            Event.FAIL,
            None,
            {"state": State.FAILED, "ended_at": NOW, "protected_until": None, "reason_text": "it moves"},
        ),
        (
            State.RUNNING,
            Event.FAIL,
            Why("T", "because"),
            {"state": State.FAILED, "reason_token": "T", "reason_text": "because"},
        ),
        (
            State.STOPPING,
            Event.STOPPED_EMPTY,
            None,
            {"state": State.WAITING_FOR_RESOURCE, "steps_per_s": None, "protected_until": None},
        ),
    ],
)
def test_a_move_sets_what_follows_from_the_state(
    state: State, event: Event, why: Why | None, expected: dict[str, Any]
) -> None:
    run = Run(state=state, state_since=NOW - SECOND)
    found = moves._columns(Transition(run, event, "it moves", why), NOW)
    assert {name: found.get(name, "absent") for name in expected} == expected
    assert found["state_since"] == NOW
    assert ("ended_at" in found) == (found["state"] is State.FAILED)


def test_of_a_batch_each_item_at_fault_is_refused_and_the_others_are_written(db: None) -> None:
    written, refused = list[int](), list[int]()

    def write(some: Any) -> list[int]:
        if bad := [one for one in some if one % 5 == 0]:
            raise moves.StaleRun(str(bad))
        written.extend(some)
        return list(some)

    done = moves.in_batches(list(range(1, 12)), write, lambda one, error: refused.append(one), 4)
    assert done == written == [1, 2, 3, 4, 6, 7, 8, 9, 11]
    assert refused == [5, 10]
    assert moves.in_batches([], write, lambda one, error: refused.append(one)) == []


def test_what_moves_says_so_in_an_event_of_its_project(world: World, job: Job) -> None:
    run = world.run(job)
    moves.move(run, Event.REALLOCATED, at=NOW, text="goes", detail={"n": 1}, rescales=4)
    event = JobEvent.objects.get(text="goes")
    assert (event.kind, event.at, event.job, event.run) == (Event.REALLOCATED.value, NOW, job, run)
    assert (event.project, event.from_state, event.to_state) == (world.project, "RUNNING", "CHECKPOINTING")
    assert event.detail == {"n": 1, "epoch": 1}
    assert (run.state, run.rescales, run.reason_text) == (State.CHECKPOINTING, 4, "goes")
    run.refresh_from_db()
    assert (run.state, run.rescales, run.reason_token) == ("CHECKPOINTING", 4, Event.REALLOCATED.value)


def test_a_move_that_cannot_be_told_is_not_made(world: World, job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(events: Any) -> None:
        raise OSError("full")

    run = world.run(job)
    monkeypatch.setattr("portal.jobs.events.store", full)
    with pytest.raises(OSError, match="full"):
        moves.move(run, Event.REALLOCATED, at=NOW, text="goes")
    assert (run.state, world.state(job)) == (State.RUNNING, State.RUNNING)


@in_turn(
    ("error", "failed"),
    [(moves.StaleRun("x"), False), (InvalidTransition(State.RUNNING, Event.ACCEPTED), False), (ValueError("x"), True)],
)
def test_only_what_is_no_conflict_is_a_failure(
    world: World, job: Job, monkeypatch: pytest.MonkeyPatch, error: Exception, failed: bool
) -> None:
    def fail(transitions: Any, at: datetime) -> None:
        raise error

    monkeypatch.setattr(moves, "move_all", fail)
    loop = Loop(LoopName.OVERDUE, world.cluster.pk)
    one = Transition(world.run(job), Event.REALLOCATED, "goes")
    assert moves.move_possible([one], NOW, loop) == []
    assert FailingItem.objects.exists() is failed


# What was seen ----------------------------------------------------------------------------------------------


@in_turn(
    ("uses_sdk", "step", "said", "launched", "state", "shown"),
    [
        (True, 700, 1000, None, State.FINISHED, 1000),
        (True, 1000, None, None, State.FINISHED, 1000),
        (True, 1000, 900, None, State.FINISHED, 1000),
        (False, 0, None, None, State.FINISHED, 1000),
        (False, 0, 3, 500, State.FINISHED, 1000),
        (True, 500, 500, 500, State.WAITING_FOR_RESOURCE, 0),  # the job has grown meanwhile
        (True, 0, 500, 500, State.WAITING_FOR_RESOURCE, 0),
        (True, 499, 499, 500, State.FINISHED, 499),  # it says that it is done before what it knew of
        (True, 600, 600, 1000, State.FINISHED, 600),
    ],
)
def test_who_says_that_it_is_done_is_done_with_what_it_knew_of(
    world: World,
    job: Job,
    uses_sdk: bool,
    step: int,
    said: int | None,
    launched: int | None,
    state: State,
    shown: int,
) -> None:
    Run.objects.filter(job=job).update(uses_sdk=uses_sdk, step=step, launched_steps=launched)
    world.gone(job, "done", step=said)
    run = world.run(job)
    assert (State(run.state), run.step) == (state, shown)
    assert world.gpus(job) == 0


@in_turn("verb", [Command.Verb.LAUNCH, Command.Verb.KILL])
def test_what_is_seen_alive_closes_its_launch_and_no_other_command(world: World, verb: str) -> None:
    job, other = queued(world), queued(world)
    world.round()
    run = world.run(job)
    Command.objects.filter(run=run).update(verb=verb)
    at = timezone.now().timestamp()
    facts = [Fact(str(run.pk), run.epoch, "alive", at), Fact(str(world.run(other).pk), 9, "alive", at)]
    observation.record_alive(facts, world.cluster.pk)
    closed = Command.objects.get(run=run).closed_at
    assert closed == (from_posix(at) if verb == Command.Verb.LAUNCH else None)
    assert Command.objects.get(run__job=other).closed_at is None


def test_a_lease_is_renewed_where_a_report_was_taken_in_of_a_launch_that_trained(world: World, job: Job) -> None:
    run = world.run(job)
    assert run.last_report_at is not None
    assert timeouts.renewals(world.cluster.pk) == {(str(run.pk), 1): run.last_report_at.timestamp()}
    assert timeouts.renewals(Cluster.objects.create(name="other").pk) == {}
    for change in ({"last_report_at": None}, {"ready_at": None}, {"last_report_seq": -1}):
        Run.objects.filter(pk=run.pk).update(**change)
        assert timeouts.renewals(world.cluster.pk) == {}
        run.save()


@in_turn(
    ("state", "then"),
    [
        (State.STANDBY, State.WAITING_FOR_RESOURCE),
        (State.LAUNCHING, State.WAITING_FOR_INITIAL_CONTACT),  # another attempt
        (State.CHECKPOINTING, State.STOPPING),
    ],
)
@in_turn("late", [False, True])
def test_what_lasts_too_long_goes_on_in_another_way(world: World, state: State, then: State, late: bool) -> None:
    job = queued(world)
    commit(world, [start(job, gpu_ids()[0])])
    if state is not State.STANDBY:
        launch(world)
    if state is State.CHECKPOINTING:
        world.ready(job)
        moves.move(world.run(job), Event.REALLOCATED, at=timezone.now(), text="goes")
    limit_s = TIME_LIMIT_S[state]
    assert limit_s is not None
    now = timezone.now()
    Run.objects.filter(job=job).update(
        state_since=now - timedelta(seconds=limit_s) - (SECOND if late else timedelta()), reason_token="x"
    )
    timeouts.advance_clock(cluster_id=Cluster.objects.create(name="other").pk, now=now)
    assert world.state(job) is state
    timeouts.advance_clock(cluster_id=world.cluster.pk, now=now)
    assert world.state(job) is (then if late else state)
    assert world.gpus(job) == (0 if late and state is not State.CHECKPOINTING else 1)


def test_what_keeps_a_job_from_the_queue_is_said_until_it_is_over(world: World) -> None:
    job = world.submit()
    assert accept(world, Why("PREPARING", "Its code is on its way.")) == []
    run = world.run(job)
    assert (State(run.state), run.reason_token) == (State.WAITING_FOR_INITIAL_CONTACT, "PREPARING")
    assert run.reason_text == "Its code is on its way."
    assert [one.pk for one in accept(world)] == [run.pk]
    assert world.state(job) is State.WAITING_FOR_INITIAL_RESOURCE
    assert accept(world) == []


def test_readiness_tells_how_long_the_launch_took_and_the_protection_lasts(world: World) -> None:
    job = queued(world)
    world.round()
    since = timezone.now() - 20 * SECOND
    Run.objects.filter(job=job).update(state_since=since)
    world.report(job, ready_at=(since + 4 * SECOND).timestamp())
    run = world.run(job)
    event = JobEvent.objects.get(kind=Event.FIRST_STEP_READY.value)
    assert event.detail["launch_s"] == pytest.approx(4.0, abs=0.01) == run.launch_s
    assert run.protected_until is not None
    assert event.detail["protected_until"] == run.protected_until.isoformat()
    assert (run.protected_until - since).total_seconds() == pytest.approx(16.0, abs=0.01)
    assert (run.ready_at, run.has_trained) == (event.at, True)


# Plans ------------------------------------------------------------------------------------------------------


@in_turn(
    ("kind", "mode", "cancels"),
    [
        ("preempt", "cancel", True),
        ("preempt", "requeue", False),
        ("start", "cancel", False),
        ("rescale", "cancel", False),
    ],
)
def test_only_who_is_preempted_so_is_cancelled(kind: str, mode: str, cancels: bool) -> None:
    move = Move("j", kind, (), None, Gang("k1", 1), Reason("t", "x", {"mode": mode}))
    assert commit_plan._cancels(move) is cancels


def test_only_runs_of_the_cluster_with_gpus_of_their_own_are_launched(world: World) -> None:
    first, second, waiting = queued(world), queued(world), queued(world)
    commit(world, [start(first, gpu_ids()[0]), start(second, gpu_ids()[1])])
    Job.objects.filter(pk=second.pk).update(cluster=Cluster.objects.create(name="other"))
    assert [run.job_id for run in launch(world)] == [first.pk]
    assert (world.state(second), world.state(waiting)) == (State.STANDBY, State.WAITING_FOR_INITIAL_RESOURCE)
    Job.objects.update(cluster=world.cluster)
    Run.objects.filter(job=waiting).update(state=State.STANDBY)  # with no GPUs planned
    assert [run.job_id for run in launch(world)] == [second.pk]
    assert launch(world) == []


def test_a_launch_that_works_again_is_no_failure_any_more(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(ready: Any, now: datetime) -> None:
        raise ValueError("odd")

    commit(world, [start(queued(world), gpu_ids()[0])])
    with monkeypatch.context() as broken:
        broken.setattr(launch_queue, "_write_launches", fail)
        assert launch(world) == []
    FailingItem.objects.update(next_attempt_at=timezone.now() - SECOND)
    assert FailingItem.objects.count() == 1
    assert len(launch(world)) == 1
    assert not FailingItem.objects.exists()


def test_a_move_that_works_again_is_no_failure_any_more(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(moves: Any, taken: Any, now: datetime) -> None:
        raise ValueError("odd")

    first = start(queued(world), gpu_ids()[0])
    with monkeypatch.context() as broken:
        broken.setattr(commit_plan, "_write", fail)
        assert commit(world, [first]) == []
    assert FailingItem.objects.get().loop == LoopName.MOVES
    assert commit(world, [first]) == [first]
    assert not FailingItem.objects.exists()


@in_turn(("moved", "words"), [(0, None), (1, "one job moves"), (2, "2 jobs move")])
def test_a_round_that_moved_something_says_what_and_which_it_was(world: World, moved: int, words: str | None) -> None:
    world.cluster.round_epoch = 1233
    applied = [Move("j", "start", (), None, None, Reason("t", "x"))] * moved
    commit_plan.note_round(cluster=world.cluster, plan=Plan(()), applied=applied, seconds=0.0125, now=NOW)
    world.cluster.refresh_from_db()
    assert (world.cluster.rounds, world.cluster.rounds_s, world.cluster.last_round_s) == (1, 0.0125, 0.0125)
    events = [(event.text, event.detail) for event in JobEvent.objects.filter(kind="round")]
    said = (f"Round 1,234: {words}, decided in 12 ms", {"round": 1234, "seconds": 0.0125})
    assert events == ([said] if words else [])


# Submission -------------------------------------------------------------------------------------------------


@in_turn(
    ("there", "here", "reached"),
    [
        (None, None, False),
        ("s3://a", None, False),
        (None, "s3://a", False),
        ("s3://a", "s3://b", False),
        ("s3://a", "s3://a", True),
    ],
)
def test_a_checkpoint_is_within_reach_on_its_own_cluster_and_in_a_store_of_both(
    world: World, monkeypatch: pytest.MonkeyPatch, there: str | None, here: str | None, reached: bool
) -> None:
    other = Cluster.objects.create(name="other")
    urls = {world.cluster.pk: there, other.pk: here}
    stores = {pk: SimpleNamespace(url=url) if url else None for pk, url in urls.items()}
    monkeypatch.setattr("portal.storage.checkpoints.configured", stores.__getitem__)
    begun = Start(world.submit(), 50)
    checks.check_start(begun, world.cluster)
    checks.check_start(None, other)
    if reached:
        checks.check_start(begun, other)
    else:
        with pytest.raises(Problems, match="lies on cluster test, not on other"):
            checks.check_start(begun, other)


# Limits -----------------------------------------------------------------------------------------------------


@in_turn(
    "change",
    [
        {"spec": {"max_cost": "2"}},
        {"spec": {}},
        {"hold_kind": "user", "held_at": NOW},
        {"state": State.FINISHED},
    ],
)
def test_who_was_changed_meanwhile_is_not_parked_by_what_was_seen(
    world: World, monkeypatch: pytest.MonkeyPatch, change: dict[str, Any]
) -> None:
    job = queued(world, max_cost="1")
    world.round()
    world.ready(job)
    seen = Job.objects.select_related("run", "project", "owner").get(pk=job.pk)
    placed: list[Any] = []
    monkeypatch.setattr(job_limits, "so_far_products", lambda job, ctx: PRODUCTS_PER_UNIT)
    monkeypatch.setattr(job_limits, "place_hold", lambda *found, **about: placed.append(about["kind"]))
    ctx: Any = SimpleNamespace(now=timezone.now())
    job_limits._suspend_if_spent(seen, ctx)
    assert placed == ["cost"]
    if "state" in change:
        Run.objects.filter(job=job).update(**change)
    else:
        Job.objects.filter(pk=job.pk).update(**change)
    job_limits._suspend_if_spent(seen, ctx)
    assert placed == ["cost"]


@in_turn("change", ["lifted", "left", "waits"])
def test_who_was_changed_meanwhile_is_not_ended(world: World, change: str) -> None:
    job = queued(world, max_duration=600, retry={"limit": 0})
    world.round()
    world.ready(job)
    now = timezone.now() + timedelta(hours=5)
    if change == "lifted":
        Job.objects.update(max_duration_s=None)
    elif change == "left":
        moves.move(world.run(job), Event.REALLOCATED, at=timezone.now(), text="goes")
    else:
        now = timezone.now()
    state = world.state(job)
    job_limits._end_if_overdue(job.pk, timedelta(seconds=1), now)
    assert world.state(job) is state


def test_of_a_deadline_only_that_job_is_told(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    deadline = timezone.now() + timedelta(hours=1)
    job, other = queued(world, deadline=deadline.isoformat()), queued(world)
    monkeypatch.setattr(job_limits, "deadline_sentence", lambda job, ctx: "It is late.")
    for _ in range(2):
        job_limits.enforce(cluster_id=world.cluster.pk, now=deadline - SECOND)
    assert JobEvent.objects.get(kind="deadline_late").job == job
    told = dict(Job.objects.values_list("pk", "deadline_told"))
    assert told == {job.pk: "late", other.pk: ""}


def test_the_names_of_metrics_are_known_once_they_were_said(world: World, job: Job) -> None:
    at = timezone.now().timestamp()
    for names in (("loss",), ("loss", "accuracy")):
        metrics = [{"step": 1, "at": at} | dict.fromkeys(names, 0.5)]
        world.report(job, step=1, metrics=metrics)
        assert set(world.run(job).metric_names) == set(names)
