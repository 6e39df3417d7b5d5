"""Guards that keep two processes apart, tried with two connections in a forced order."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from django.db import IntegrityError
from django.utils import timezone
from psycopg2.extras import DateTimeTZRange

from accounts import ledger
from accounts.invitations import BadInvitation, accept_invitation, invite
from accounts.models import ApiToken, BudgetNotice, LedgerEntry, Membership, Project, Quota, User
from accounts.rates import set_discount, set_rate
from accounts.tokens import TokenEnded, create_token, rotate_token
from portal.accounting.budgets import give_notices
from portal.jobs.models import Assignment, Command, Hold, HoldKind, Job, JobEvent, Run
from portal.lifecycle import commit_plan, job_limits, launch_queue
from portal.lifecycle.cancel import JobHasEnded, cancel_job
from portal.lifecycle.suspend import hold_job, release_job
from portal.lifecycle.transitions import StaleRun, Transition, move, move_all
from portal.reporting import acceptance, observation, timeouts
from portal.reporting.reports import StaleEpoch
from portal.snapshot import run_version
from portal.submission.transfer import move_job
from scheduling.domain import Plan, Reason
from scheduling.executors.base import ExitInfo, Fact
from scheduling.lifecycle import Event, State
from tests.portal.lifecycle.test_moves_together import change, commit, gpu_ids, start
from tests.portal.together import overtaken
from tests.portal.world import World, check_invariants

pytestmark = pytest.mark.django_db(transaction=True)


def queued(world: World, **keys: Any) -> Job:
    job = world.submit(**keys)
    acceptance.accept_waiting(cluster_id=world.cluster.pk, problem_of=lambda run: None, now=timezone.now())
    return job


def cancel(job: Job) -> Callable[[], object]:
    return lambda: cancel_job(user=job.owner, job=job)


# The view of a run that a move begins with -----------------------------------------------------------------


def _one(run: Run) -> None:
    move(run, Event.REALLOCATED, at=timezone.now(), text="moves")


def _all(run: Run) -> None:
    move_all([Transition(run, Event.REALLOCATED, "moves")], timezone.now())


@pytest.mark.parametrize("write", [_one, _all])
@pytest.mark.parametrize("change", [{"state": State.CANCELLED}, {"epoch": 2}, {"state": State.FAILED, "epoch": 2}])
def test_a_move_by_an_old_view_changes_nothing(
    world: World, write: Callable[[Run], None], change: dict[str, Any]
) -> None:
    job = world.submit()
    world.train(job)
    seen = world.run(job)
    state = seen.state
    Run.objects.filter(pk=seen.pk).update(**change)
    before, events = world.run(job), JobEvent.objects.count()
    with pytest.raises(StaleRun):
        write(seen)
    after = world.run(job)
    assert (after.state, after.epoch, after.state_since) == (before.state, before.epoch, before.state_since)
    assert JobEvent.objects.count() == events
    assert seen.state == state


def test_moves_of_many_wait_for_whoever_moves_one_of_them(world: World) -> None:
    job = world.submit()
    world.train(job)
    seen = world.run(job)
    second = overtaken(cancel(job), lambda: _all(seen))
    assert isinstance(second.error, StaleRun)
    assert world.state(job) is State.CANCELLED


# Rounds ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("act", [cancel, lambda job: lambda: hold_job(actor=job.owner, job=job)])
def test_a_round_starts_nobody_who_was_taken_out_meanwhile(world: World, act: Callable[[Job], Any]) -> None:
    job, other = queued(world), queued(world)
    first, second = gpu_ids()[:2]
    plan = [start(job, first), start(other, second)]
    done = overtaken(act(job), lambda: commit(world, plan))
    assert [m.job_id for m in done.result] == [str(other.pk)]
    assert world.gpus(job) == 0
    check_invariants(world)


def test_a_round_starts_nobody_as_of_a_project_that_the_job_has_left(world: World) -> None:
    job = queued(world)
    there = Project.objects.create(key="speech", name="Speech")
    Membership.objects.create(project=there, user=world.user)
    done = overtaken(
        lambda: move_job(actor=world.user, job=job, key="speech"), lambda: commit(world, [start(job, gpu_ids()[0])])
    )
    assert done.result == []
    assert world.gpus(job) == 0


def test_of_two_rounds_that_saw_the_same_one_is_applied(world: World) -> None:
    first, second = queued(world), queued(world)
    world.cluster.refresh_from_db()
    epoch = world.cluster.round_epoch
    gpu = gpu_ids()[0]
    done = overtaken(lambda: commit(world, [start(first, gpu)]), lambda: commit_at(world, epoch, start(second, gpu)))
    assert isinstance(done.error, commit_plan.StaleRound)
    assert (world.gpus(first), world.gpus(second)) == (1, 0)


def commit_at(world: World, epoch: int, *moves: Any) -> Any:
    runs = Run.objects.filter(job__run__isnull=False).select_related("job")
    seen = {str(r.job_id): run_version.RunVersion(r.pk, State(r.state), r.epoch, r.job.project_id) for r in runs}
    return commit_plan.commit_plan(
        cluster_id=world.cluster.pk, round_epoch=epoch, plan=Plan(moves), seen=seen, now=timezone.now()
    )


def test_nobody_is_launched_who_was_cancelled_meanwhile(world: World) -> None:
    job, other = queued(world), queued(world)
    first, second = gpu_ids()[:2]
    commit(world, [start(job, first), start(other, second)])
    done = overtaken(cancel(job), lambda: launch_queue.launch_ready(cluster_id=world.cluster.pk, now=timezone.now()))
    assert [run.job_id for run in done.result] == [other.pk]
    assert not Hold.objects.filter(run__job=job).exists()
    assert not Command.objects.filter(run__job=job, verb=Command.Verb.LAUNCH).exists()
    check_invariants(world)


def test_a_round_writes_no_reason_over_that_of_a_run_which_ended(world: World) -> None:
    job = queued(world)
    reason = Reason("capacity", "It waits.")
    plan = Plan((), reasons={str(job.pk): reason})
    run = world.run(job)
    seen = {str(job.pk): run_version.RunVersion(run.pk, State(run.state), run.epoch, job.project_id)}
    world.cluster.refresh_from_db()
    values: dict[str, Any] = {
        "cluster_id": world.cluster.pk,
        "round_epoch": world.cluster.round_epoch,
        "plan": plan,
        "seen": seen,
    }
    overtaken(cancel(job), lambda: commit_plan.commit_plan(**values, now=timezone.now()))
    assert world.run(job).reason_token != "capacity"


def test_who_keeps_its_gpus_because_its_move_is_refused_keeps_them_before_they_go_to_others(world: World) -> None:
    stays, busy, newcomer = queued(world), queued(world), queued(world)
    first, second = gpu_ids()[:2]
    commit(world, [start(stays, first), start(busy, second)])
    launch_queue.launch_ready(cluster_id=world.cluster.pk, now=timezone.now())
    applied = commit(world, [start(newcomer, first), change(stays, "rescale", [second])])
    assert applied == []
    assert (world.gpus(stays), world.gpus(busy), world.gpus(newcomer)) == (1, 1, 0)
    assert world.state(stays) is State.LAUNCHING
    check_invariants(world)


# Reports and facts -----------------------------------------------------------------------------------------


def test_a_report_waits_for_a_cancel_and_is_answered_with_the_order_to_leave(world: World) -> None:
    job = world.submit()
    world.train(job)
    done = overtaken(cancel(job), lambda: world.report(job, step=70))
    assert done.waited
    assert done.result == Command.Verb.KILL
    assert world.run(job).step == 0


def test_a_report_of_a_launch_that_is_replaced_meanwhile_is_stale(world: World) -> None:
    job = world.submit()
    world.train(job)
    run = world.run(job)
    done = overtaken(
        lambda: Run.objects.filter(pk=run.pk).update(epoch=run.epoch + 1),
        lambda: world.report(job, epoch=run.epoch, step=70),
    )
    assert isinstance(done.error, StaleEpoch)
    assert world.run(job).step == 0


def test_of_two_words_on_the_same_end_one_counts(world: World) -> None:
    job = world.submit(retry={"limit": 3, "backoff_s": 0})
    world.train(job)
    run = world.run(job)
    lost = Fact(str(run.pk), run.epoch, "exited", timezone.now().timestamp(), ExitInfo("launch_failed"))
    done = overtaken(lambda: observation.record_fact(lost), lambda: observation.record_fact(lost))
    assert done.waited
    assert Run.objects.filter(job=job).count() == 2
    check_invariants(world)


def test_a_report_does_not_revive_what_an_executor_saw_end(world: World) -> None:
    job = world.submit(retry={"limit": 0})
    world.train(job)
    run = world.run(job)
    done_fact = Fact(str(run.pk), run.epoch, "exited", timezone.now().timestamp(), ExitInfo("user_error", exit_code=1))
    done = overtaken(lambda: observation.record_fact(done_fact), lambda: world.report(job, step=5))
    assert done.result == Command.Verb.KILL
    assert (world.state(job), world.run(job).step) == (State.FAILED, 0)


def test_what_takes_too_long_is_ended_by_what_it_is_now(world: World) -> None:
    job = world.submit()
    world.round()
    Run.objects.filter(job=job).update(state_since=timezone.now() - timedelta(days=1))
    overtaken(cancel(job), lambda: timeouts.advance_clock(cluster_id=world.cluster.pk, now=timezone.now()))
    assert world.state(job) is State.CANCELLED
    assert Run.objects.filter(job=job).count() == 1


def test_who_is_cancelled_meanwhile_is_not_ended_for_its_time(world: World) -> None:
    job = world.submit(max_duration=600, gpus={"min": 1, "max": 1})
    world.train(job)
    later = timezone.now() + timedelta(days=1)
    done = overtaken(cancel(job), lambda: job_limits.end_overdue(cluster_id=world.cluster.pk, now=later))
    assert done.waited
    assert (done.error, world.state(job)) == (None, State.CANCELLED)
    assert Run.objects.filter(job=job).count() == 1
    other = world.submit(max_duration=600, retry={"limit": 0})
    world.train(other)
    job_limits.end_overdue(cluster_id=world.cluster.pk, now=later)
    assert world.state(other) is State.FAILED


# People's changes ------------------------------------------------------------------------------------------


def test_who_is_cancelled_is_not_held(world: World) -> None:
    job = queued(world)
    done = overtaken(cancel(job), lambda: hold_job(actor=world.user, job=job))
    assert isinstance(done.error, JobHasEnded)
    assert Job.objects.get(pk=job.pk).hold_kind == ""


def test_who_is_released_twice_at_once_waited_for_one_time(world: World) -> None:
    job = queued(world)
    hold_job(actor=world.user, job=job)
    Job.objects.filter(pk=job.pk).update(held_at=timezone.now() - timedelta(hours=1))

    def release() -> object:
        return release_job(actor=world.user, job=job)

    done = overtaken(release, release)
    assert done.waited
    assert JobEvent.objects.filter(job=job, kind="released").count() == 1
    fresh = Job.objects.get(pk=job.pk)
    assert fresh.eligible_at is not None
    assert fresh.eligible_at - fresh.submitted_at == pytest.approx(timedelta(hours=1), abs=timedelta(minutes=5))


def test_of_two_who_accept_an_invitation_at_once_one_does(world: World) -> None:
    root = User.objects.create_superuser("root@example.org", "x")
    now = timezone.now()
    _, secret = invite(actor=root, project=world.project, email="bo@example.org", role="member", now=now)
    bo = User.objects.create_user("bo@example.org", "x")

    def accept() -> object:
        return accept_invitation(secret=secret, user=bo, now=now)

    done = overtaken(accept, accept)
    assert isinstance(done.error, BadInvitation)
    assert Membership.objects.filter(project=world.project, user=bo).count() == 1


def test_of_two_who_rotate_a_token_at_once_one_does(world: World) -> None:
    token, _ = create_token(user=world.user, name="ci")

    def rotate() -> object:
        return rotate_token(actor=world.user, token=token, now=timezone.now())

    done = overtaken(rotate, rotate)
    assert isinstance(done.error, TokenEnded)
    assert ApiToken.objects.filter(rotated_from=token).count() == 1


# Told once -------------------------------------------------------------------------------------------------


def test_of_a_deadline_people_are_told_once(world: World) -> None:
    deadline = timezone.now() + timedelta(hours=1)
    job = world.submit(deadline=deadline.isoformat())
    world.train(job)

    def tell() -> None:
        job_limits.enforce(cluster_id=world.cluster.pk, now=deadline + timedelta(seconds=1))

    done = overtaken(tell, tell)
    assert done.waited
    assert JobEvent.objects.filter(job=job, kind="deadline_passed").count() == 1


def test_of_a_budget_people_are_told_once(world: World) -> None:
    quota = Quota.objects.create(project=world.project, kind="gpu_hours", period="day", limit=10)
    enter(world.project, START, START + HOUR)

    def tell() -> None:
        give_notices(START + HOUR)

    done = overtaken(tell, tell)
    assert done.waited
    assert BudgetNotice.objects.filter(quota=quota).count() == 2
    assert JobEvent.objects.filter(kind="budget").count() == 2


def test_of_a_raised_budget_people_are_told_once(world: World) -> None:
    quota = Quota.objects.create(project=world.project, kind="gpu_hours", period="day", limit=10)
    enter(world.project, START, START + HOUR)
    give_notices(START + HOUR)
    Quota.objects.filter(pk=quota.pk).update(limit=20)

    def tell() -> None:
        give_notices(START + HOUR)

    done = overtaken(tell, tell)
    assert done.waited
    assert JobEvent.objects.filter(kind="budget").count() == 4
    assert set(BudgetNotice.objects.values_list("limit", flat=True)) == {20}


# Prices ----------------------------------------------------------------------------------------------------

START, HOUR = datetime(2026, 1, 1, 8, tzinfo=UTC), timedelta(hours=1)


def enter(project: Project, since: datetime, until: datetime) -> None:
    job = UUID(int=1)
    ledger.record_holds([ledger.Held(project.pk, None, job, job, 1, "k1", since, until)])


def _prices() -> list[tuple[int, int]]:
    rows = LedgerEntry.objects.order_by("from_at")
    return list(rows.values_list("price_micro_per_hour", "kept_hundredths"))


def test_what_is_entered_while_a_price_changes_is_entered_at_both(world: World) -> None:
    now = timezone.now()
    done = overtaken(
        lambda: set_rate(actor=None, accelerator_type="k1", price_micro_per_hour=5_000_000),
        lambda: enter(world.project, now - HOUR, timezone.now() + HOUR),
    )
    assert done.waited
    assert _prices() == [(1_234_567, 10_000), (5_000_000, 10_000)]


def test_what_is_entered_while_a_discount_begins_is_entered_with_both(world: World) -> None:
    now = timezone.now()
    done = overtaken(
        lambda: set_discount(actor=None, project=world.project, percent_hundredths=2_500),
        lambda: enter(world.project, now - HOUR, timezone.now() + HOUR),
    )
    assert done.waited
    assert _prices() == [(1_234_567, 10_000), (1_234_567, 7_500)]


@pytest.mark.parametrize(
    "change",
    [
        lambda world: set_rate(actor=None, accelerator_type="k1", price_micro_per_hour=5_000_000).valid_from,
        lambda world: set_discount(actor=None, project=world.project, percent_hundredths=2_500).valid_from,
    ],
)
def test_a_change_of_prices_waits_for_what_is_being_entered_and_begins_after_it(
    world: World, change: Callable[[World], datetime]
) -> None:
    entered: list[datetime] = []

    def slowly() -> None:
        enter(world.project, timezone.now() - HOUR, timezone.now())
        entered.append(timezone.now())

    done = overtaken(slowly, lambda: change(world))
    assert done.waited
    assert done.result > entered[0]


def test_entries_do_not_wait_for_each_other(world: World) -> None:
    job = UUID(int=2)
    other = ledger.Held(world.project.pk, None, job, job, 2, "k1", START + 24 * HOUR, START + 25 * HOUR)
    done = overtaken(lambda: ledger.lock_prices(exclusively=False), lambda: ledger.record_holds([other]))
    assert not done.waited


# Unique rows: the database refuses what a guard let through ------------------------------------------------


def test_a_job_has_one_live_run(world: World) -> None:
    job = world.submit()
    values = {"job": job, "attempt": 2, "state": State.WAITING_FOR_RESOURCE, "state_since": timezone.now()}
    with pytest.raises(IntegrityError):
        Run.objects.create(**values)


def test_a_gpu_is_assigned_once(world: World) -> None:
    job, other = queued(world), queued(world)
    gpu = gpu_ids()[0]
    commit(world, [start(job, gpu)])
    during = DateTimeTZRange(timezone.now(), None)
    for model in (Assignment, Hold):
        model.objects.filter(run__job=other).delete()
        if model is Hold:
            launch_queue.launch_ready(cluster_id=world.cluster.pk, now=timezone.now())
        with pytest.raises(IntegrityError):
            model.objects.create(run=world.run(other), accelerator_id=gpu, epoch=1, during=during)


def test_a_hold_of_an_administrator_is_not_lifted_by_the_owner(world: World) -> None:
    root = User.objects.create_superuser("root@example.org", "x")
    job = queued(world)
    done = overtaken(
        lambda: hold_job(actor=root, job=job),
        lambda: release_job(actor=world.user, job=job),
    )
    assert isinstance(done.error, PermissionError)
    assert Job.objects.get(pk=job.pk).hold_kind == HoldKind.ADMIN
