"""Who may hold, release, cancel and submit what, what each act leaves behind, and what refuses it."""

from __future__ import annotations

from typing import Any

import pytest
from django.utils import timezone

from accounts.models import AuditEntry, Membership, Project, User
from portal.core.problems import Problems
from portal.jobs.models import Assignment, Command, Hold, HoldKind, Job, JobEvent, Run
from portal.lifecycle import allocations, cancel, suspend, transitions
from portal.lifecycle.cancel import JobHasEnded, cancel_job
from portal.lifecycle.locking import JobConflict
from portal.lifecycle.suspend import hold_job, release_job
from scheduling.lifecycle import Event, State
from tests.portal.lifecycle.test_guards_exactly import SECOND, job
from tests.portal.lifecycle.test_moves_together import change, commit, gpu_ids, start
from tests.portal.lifecycle.test_services_exactly import queued
from tests.portal.world import World, check_invariants

__all__ = ["job"]  # the fixture


# Holds ------------------------------------------------------------------------------------------------------


def test_an_administrators_hold_takes_the_place_of_a_persons_and_not_the_other_way_round(world: World) -> None:
    root = User.objects.create_superuser("root@example.org", "x")
    job = queued(world)
    kinds = []
    for actor in (world.user, world.user, root, world.user, root):
        hold_job(actor=actor, job=job)
        kinds.append(Job.objects.get(pk=job.pk).hold_kind)
    assert kinds == ["user", "user", "admin", "admin", "admin"]
    assert JobEvent.objects.filter(kind="held").count() == 2
    assert Job.objects.get(pk=job.pk).held_by == root
    with pytest.raises(PermissionError, match="Only administrators release it"):
        release_job(actor=world.user, job=job)
    release_job(actor=root, job=job)
    assert Job.objects.get(pk=job.pk).hold_kind == ""
    acts = AuditEntry.objects.filter(action__in=("job.hold", "job.release")).values_list("action", "actor_email")
    assert list(acts.order_by("pk")) == [("job.hold", root.email), ("job.release", root.email)]


def test_an_administrator_holds_their_own_job_as_anybody(world: World) -> None:
    root = User.objects.create_superuser("root@example.org", "x")
    Membership.objects.create(project=world.project, user=root)
    job = world.submit(user=root)
    hold_job(actor=root, job=job)
    assert Job.objects.get(pk=job.pk).hold_kind == HoldKind.USER
    assert Job.objects.get(pk=job.pk).hold_text.startswith(f"Held by {root} since")


@pytest.mark.parametrize(
    ("uses_sdk", "restartable", "refused"),
    [(False, None, True), (None, None, False), (True, None, False), (True, False, True), (False, True, False)],
)
def test_a_person_does_not_hold_what_would_lose_all_while_it_runs(
    world: World, job: Job, uses_sdk: bool | None, restartable: bool | None, refused: bool
) -> None:
    Run.objects.filter(job=job).update(uses_sdk=uses_sdk)
    Job.objects.filter(pk=job.pk).update(restartable=restartable)
    waits = queued(world)
    Job.objects.filter(pk=waits.pk).update(restartable=False)
    hold_job(actor=world.user, job=waits)  # which has nothing to lose
    if refused:
        with pytest.raises(JobConflict):
            hold_job(actor=world.user, job=job)
    else:
        hold_job(actor=world.user, job=job)
    assert bool(Job.objects.get(pk=job.pk).hold_kind) is not refused
    root = User.objects.create_superuser("root@example.org", "x")
    hold_job(actor=root, job=job)
    assert Job.objects.get(pk=job.pk).hold_kind == HoldKind.ADMIN


@pytest.mark.parametrize(
    ("restartable", "says"),
    [(False, "Its job file says restartable: false"), (None, "Its program does not use the SDK")],
)
def test_a_refused_hold_says_what_would_make_it_possible(
    world: World, job: Job, restartable: bool | None, says: str
) -> None:
    Run.objects.filter(job=job).update(uses_sdk=False)
    Job.objects.filter(pk=job.pk).update(restartable=restartable)
    with pytest.raises(JobConflict) as said:
        hold_job(actor=world.user, job=job)
    assert str(said.value).startswith(
        f"job: {says}: held, #{job.number} would start from the beginning when it is released."
    )
    fresh = Job.objects.get(pk=job.pk)
    assert suspend.hold_first(fresh, world.run(job), "hold it first").startswith("its program would start")
    fresh.restartable = True
    assert suspend.hold_first(fresh, world.run(job), "hold it first") == "hold it first"


def test_why_a_job_is_held_is_cut_to_what_is_kept(world: World) -> None:
    job = queued(world)
    text = "x" * 400
    suspend.place_hold(job, world.run(job), kind=HoldKind.COST, actor=None, text=text, now=timezone.now())
    assert Job.objects.get(pk=job.pk).hold_text == "x" * 300
    run = world.run(job)
    assert (run.reason_token, run.reason_text, run.reason_detail) == ("HELD", text, {})


def test_a_held_job_that_stops_says_that_it_is_held(world: World, job: Job) -> None:
    hold_job(actor=world.user, job=job)
    run = world.run(job)
    assert (State(run.state), run.reason_token) == (State.CHECKPOINTING, "HELD")
    assert run.reason_text != f"#{job.number} {job.name} writes a checkpoint and stops"


def test_what_leaves_already_is_held_and_asked_once(world: World, job: Job) -> None:
    commit(world, [change(job, "rescale", [gpu_ids()[1]])])
    hold_job(actor=world.user, job=job)
    run = world.run(job)
    assert (State(run.state), run.reason_token, world.gpus(job)) == (State.CHECKPOINTING, "HELD", 0)
    assert Command.objects.filter(run=run, verb=Command.Verb.CHECKPOINT_AND_STOP).count() == 1
    assert world.open_commands() >= {(Command.Verb.CHECKPOINT_AND_STOP, 1)}
    world.gone(job)
    assert world.state(job) is State.WAITING_FOR_RESOURCE


def test_what_cost_too_much_is_not_released_until_it_may_cost_more(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = queued(world, max_cost="1")
    hold_job(actor=world.user, job=job)
    Job.objects.filter(pk=job.pk).update(hold_kind=HoldKind.COST, hold_text="It has cost 1.")
    monkeypatch.setattr(suspend, "has_cost_its_limit", lambda job, now: True)
    with pytest.raises(JobConflict, match=r"It has cost 1\."):
        release_job(actor=world.user, job=job)
    Job.objects.filter(pk=job.pk).update(hold_kind=HoldKind.USER)
    assert release_job(actor=world.user, job=job).hold_kind == ""  # it is parked again once it runs
    Job.objects.filter(pk=job.pk).update(hold_kind=HoldKind.COST, held_at=timezone.now())
    monkeypatch.setattr(suspend, "has_cost_its_limit", lambda job, now: False)
    assert release_job(actor=world.user, job=job).hold_kind == ""


def test_a_release_leaves_nothing_of_the_hold(world: World) -> None:
    job = queued(world)
    release_job(actor=world.user, job=job)
    assert not JobEvent.objects.filter(kind="released").exists()  # nothing was held
    hold_job(actor=world.user, job=job)
    Run.objects.update(reason_detail={"n": 1})
    release_job(actor=world.user, job=job)
    fresh = Job.objects.get(pk=job.pk)
    assert (fresh.hold_kind, fresh.held_by, fresh.held_at, fresh.hold_text) == ("", None, None, "")
    run = world.run(job)
    assert (run.reason_token, run.reason_detail) == ("NEW", {})
    cancel_job(user=world.user, job=job)
    for act in (hold_job, release_job):
        with pytest.raises(JobHasEnded):
            act(actor=world.user, job=job)


# Ends -------------------------------------------------------------------------------------------------------


def test_cancelling_gives_back_what_was_planned_and_kills_what_runs(world: World, job: Job) -> None:
    planned = queued(world)
    commit(world, [start(planned, gpu_ids()[1])])
    for one in (job, planned):
        cancel_job(user=world.user, job=one, reason="a typo")
    assert (world.gpus(job), world.gpus(planned)) == (0, 0)
    kills = Command.objects.filter(verb=Command.Verb.KILL, closed_at=None)
    assert list(kills.values_list("run__job", "epoch")) == [(job.pk, 1)]
    assert Hold.objects.filter(during__upper_inf=True).count() == 1  # until its processes are gone
    assert world.run(job).reason_text == f"#{job.number} cancelled by {world.user}: a typo"
    assert cancel_job(user=world.user, job=job) == job
    assert JobEvent.objects.filter(kind=Event.CANCEL.value).count() == 2
    check_invariants(world)


@pytest.mark.parametrize(("overtaken", "cancelled"), [(1, True), (4, True), (5, False)])
def test_a_cancel_that_is_overtaken_looks_again_a_few_times(
    world: World, job: Job, monkeypatch: pytest.MonkeyPatch, overtaken: int, cancelled: bool
) -> None:
    left = [True] * overtaken

    def move(*given: Any, **more: Any) -> State:
        if left:
            left.pop()
            raise transitions.StaleRun("somebody was faster")
        return transitions.move(*given, **more)

    monkeypatch.setattr(cancel, "move", move)
    if cancelled:
        assert cancel_job(user=None, job=job).pk == job.pk
        assert world.run(job).reason_text == f"#{job.number} cancelled"
    else:
        with pytest.raises(transitions.StaleRun, match="keeps changing"):
            cancel_job(user=None, job=job)
    assert (world.state(job) is State.CANCELLED) is cancelled
    assert Command.objects.filter(verb=Command.Verb.KILL).exists() is cancelled


def test_what_is_to_be_killed_is_said_once_for_each_launch(world: World, job: Job) -> None:
    run = world.run(job)
    for _ in range(2):
        allocations.end_processes(run, timezone.now())
    assert list(Command.objects.filter(verb=Command.Verb.KILL).values_list("run", "epoch")) == [(run.pk, 1)]


def test_who_has_ended_is_not_cancelled(world: World, job: Job) -> None:
    world.gone(job, "done", step=1_000)
    with pytest.raises(JobHasEnded):
        cancel_job(user=world.user, job=job)
    assert world.state(job) is State.FINISHED


def test_an_assignment_that_never_began_to_count_leaves_no_trace(world: World) -> None:
    early, late = queued(world), queued(world)
    now = timezone.now()
    commit(world, [start(early, gpu_ids()[0]), start(late, gpu_ids()[1])], now)
    allocations.end_assignments(world.run(early), now)
    assert not Assignment.objects.filter(run__job=early).exists()
    allocations.end_assignments(world.run(late), now + SECOND)
    (row,) = Assignment.objects.all()
    assert (row.run.job_id, row.during.lower, row.during.upper) == (late.pk, now, now + SECOND)
    allocations.end_assignments(world.run(late), now + 2 * SECOND)
    row.refresh_from_db()
    assert row.during.upper == now + SECOND


# Whose project ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("count", "named", "found"), [(1, None, "vision"), (2, None, None), (2, "speech", "speech")])
def test_a_project_need_not_be_named_where_there_is_one_only(
    world: World, count: int, named: str | None, found: str | None
) -> None:
    Project.objects.create(key="foreign", name="Foreign")
    if count == 2:
        Membership.objects.create(project=Project.objects.create(key="speech", name="Speech"), user=world.user)
    if found is None:
        with pytest.raises(Problems, match=r"Name a project that you may submit to: .*speech"):
            world.submit(project=named)
    else:
        assert world.submit(project=named).project.key == found
    with pytest.raises(Problems, match="Name a project"):
        world.submit(project="foreign")
    Membership.objects.update(role="viewer")
    with pytest.raises(Problems, match="You may not submit to any project"):
        world.submit()
