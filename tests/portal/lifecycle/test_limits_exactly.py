"""Budgets, costs, deadlines and times of training exactly at their limits, and a moment before."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from django.conf import settings
from django.utils import timezone

from accounts import ledger
from accounts.models import BudgetNotice, Project, Quota, User
from accounts.pricing import PRODUCTS_PER_UNIT
from portal.accounting import budgets
from portal.accounting.budgets import give_notices
from portal.jobs.models import Cluster, Job, JobEvent, Run
from portal.lifecycle import job_limits, report_interval, suspend
from scheduling.lifecycle import State
from tests.portal.world import World

pytestmark = pytest.mark.django_db
START, SECOND, MICRO = datetime(2026, 1, 1, 8, tzinfo=UTC), timedelta(seconds=1), timedelta(microseconds=1)


def train(world: World, **keys: Any) -> Job:
    job = world.submit(**keys)
    world.train(job)
    return job


# Budgets ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("used", "told"),
    [
        (8 * SECOND - MICRO, []),
        (8 * SECOND, [80]),
        (10 * SECOND - MICRO, [80]),
        (10 * SECOND, [80, 100]),
        (20 * SECOND, [80, 100]),
    ],
)
def test_people_are_told_at_exactly_a_share_of_a_budget(world: World, used: timedelta, told: list[int]) -> None:
    quota = Quota.objects.create(project=world.project, kind="gpu_hours", period="day", limit=10)
    mine = Quota.objects.create(user=world.user, kind="gpu_hours", period="day", limit=10)
    Quota.objects.create(project=world.project, kind="money", period="day", limit=0)
    job = UUID(int=1)
    ledger.record_holds([ledger.Held(world.project.pk, world.user.pk, job, job, 1, "k1", START, START + used)])
    for _ in range(2):
        give_notices(START + timedelta(hours=1))
    for row in (quota, mine):
        found = BudgetNotice.objects.filter(quota=row).order_by("percent")
        assert list(found.values_list("percent", flat=True)) == told
    events = JobEvent.objects.filter(kind="budget").order_by("pk")
    assert [event.detail["percent"] for event in events] == told  # of the person's own limit there is no event
    give_notices(START + timedelta(days=1))
    assert JobEvent.objects.filter(kind="budget").count() == len(told)


def test_a_raised_budget_is_told_of_anew_and_a_lowered_one_is_not(world: World) -> None:
    quota = Quota.objects.create(project=world.project, kind="gpu_hours", period="day", limit=10)
    job = UUID(int=1)
    ledger.record_holds([ledger.Held(world.project.pk, None, job, job, 1, "k1", START, START + 9 * SECOND)])
    counts = []
    for limit in (10, 11, 11, 10, 12):
        Quota.objects.filter(pk=quota.pk).update(limit=limit)
        give_notices(START + timedelta(hours=1))
        counts.append(JobEvent.objects.filter(kind="budget").count())
    assert counts == [1, 2, 2, 2, 2]  # 9 of 12 is less than 80 %
    assert BudgetNotice.objects.get().limit == 11


def spend(world: World, used: timedelta) -> None:
    job = UUID(int=1)
    ledger.record_holds([ledger.Held(world.project.pk, world.user.pk, job, job, 1, "k1", START, START + used)])


@pytest.mark.parametrize(
    ("used", "hard", "looked_at"),
    [(5 * SECOND - MICRO, True, False), (5 * SECOND, True, True), (9 * SECOND, False, False)],
)
def test_what_jobs_use_on_their_way_out_is_looked_at_where_half_of_a_hard_budget_is_used(
    world: World, monkeypatch: pytest.MonkeyPatch, used: timedelta, hard: bool, looked_at: bool
) -> None:
    near = list[list[Quota]]()

    def full_soon(some: list[Quota], now: datetime) -> dict[int, bool]:
        near.append(some)
        return {}

    monkeypatch.setattr(budgets, "_full_soon", full_soon)
    quota = Quota.objects.create(project=world.project, kind="gpu_hours", period="day", limit=10, hard=hard)
    spend(world, used)
    give_notices(START + timedelta(hours=1))
    assert near == [[quota] if looked_at else []]


@pytest.mark.parametrize(("used", "full"), [(Fraction("9.99"), False), (Fraction(10), True)])
def test_a_hard_budget_is_full_that_is_used_up_when_the_slowest_of_those_who_run_can_have_left(
    world: World, monkeypatch: pytest.MonkeyPatch, used: Fraction, full: bool
) -> None:
    quota = Quota.objects.create(project=world.project, kind="gpu_hours", period="day", limit=10, hard=True)
    ahead = list[float]()

    def of(some: list[Quota], now: datetime, *, ahead_s: float) -> Any:
        ahead.append(ahead_s)
        return SimpleNamespace(used=lambda quota: used)

    for job, checkpoint_s in ((train(world, gpus={"min": 1, "max": 1}), 30), (world.submit(), 90)):
        Run.objects.filter(job=job).update(checkpoint_s=checkpoint_s)
    monkeypatch.setattr("portal.accounting.budgets.Uses.of", of)
    assert budgets._full_soon([quota], START) == {quota.pk: full}
    assert ahead == [settings.EVENKEEL_ROUND_INTERVAL_S + 30 + 5]


@pytest.mark.parametrize(("used_s", "told"), [(9, [80]), (10, [80, 100])])
def test_of_a_hard_budget_people_are_told_while_nothing_runs(world: World, used_s: int, told: list[int]) -> None:
    Quota.objects.create(project=world.project, kind="gpu_hours", period="day", limit=10, hard=True)
    spend(world, used_s * SECOND)
    give_notices(START + timedelta(hours=1))
    assert list(BudgetNotice.objects.order_by("percent").values_list("percent", flat=True)) == told


@pytest.mark.parametrize(("hard", "soon", "percents"), [(True, True, [80, 100]), (True, False, [80])])
def test_a_hard_budget_is_closed_before_it_is_crossed_and_says_so(
    world: World, monkeypatch: pytest.MonkeyPatch, hard: bool, soon: bool, percents: list[int]
) -> None:
    quota = Quota.objects.create(project=world.project, kind="gpu_hours", period="day", limit=36_000, hard=hard)
    monkeypatch.setattr(budgets, "_full_soon", lambda near, now: {quota.pk: soon})
    spend(world, 36_000 * SECOND * 95 // 100)
    give_notices(START + timedelta(hours=11))
    first, *others = JobEvent.objects.filter(kind="budget").order_by("pk")
    assert [event.detail["percent"] for event in (first, *others)] == percents
    assert first.text.startswith("80 % of the 10 GPU-hours per day on project Vision are used: 9.5.")
    for event in others:
        text = "The 10 GPU-hours per day on project Vision are used up by the time that running jobs can have left: "
        assert event.text.startswith(f"{text}9.5 now. Running jobs write a checkpoint")


@pytest.mark.parametrize(
    ("hard", "then"), [(True, "write a checkpoint and are suspended"), (False, "continue and do not grow")]
)
def test_at_its_limit_a_budget_says_what_becomes_of_running_jobs(world: World, hard: bool, then: str) -> None:
    Quota.objects.create(project=world.project, kind="gpu_hours", period="day", limit=3_600, hard=hard)
    spend(world, 3_600 * SECOND)
    give_notices(START + timedelta(hours=2))
    first, last = JobEvent.objects.filter(kind="budget").order_by("pk")
    assert "Running jobs" not in first.text
    assert last.text.startswith("100 % of the 1 GPU-hour per day on project Vision are used: 1. Running jobs " + then)
    detail = {"percent": 100, "used": "1", "limit": "1", "period": "day", "kind": "gpu_hours", "hard": hard}
    assert detail.items() <= last.detail.items()


# What a job may cost ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("spent", "parked"), [("0.999999", False), ("1", True), ("1.5", True)])
def test_a_job_goes_on_until_it_has_cost_what_it_may(
    world: World, spent: str, parked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    products = Decimal(spent) * PRODUCTS_PER_UNIT
    for module in (job_limits, suspend):
        monkeypatch.setattr(module, "so_far_products", lambda job, ctx: products)
    job = train(world, max_cost="1", gpus={"min": 1, "max": 1})
    other = train(world, gpus={"min": 1, "max": 1})
    job_limits.enforce(cluster_id=world.cluster.pk, now=timezone.now())
    assert bool(Job.objects.get(pk=job.pk).hold_kind) == parked
    assert (world.state(job) is State.CHECKPOINTING) == parked
    assert Job.objects.get(pk=other.pk).hold_kind == ""
    assert suspend.has_cost_its_limit(job, timezone.now()) == parked
    job_limits.enforce(cluster_id=world.cluster.pk, now=timezone.now())
    assert JobEvent.objects.filter(job=job, kind="held").count() == int(parked)


# Deadlines -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("after", "told"), [(-SECOND, "late"), (timedelta(), "passed"), (SECOND, "passed")])
def test_a_deadline_is_late_before_it_and_passed_from_its_moment_on(
    world: World, after: timedelta, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    deadline = (timezone.now() + timedelta(hours=1)).replace(microsecond=0)
    job = train(world, deadline=deadline.isoformat())
    monkeypatch.setattr(job_limits, "deadline_sentence", lambda job, ctx: "It is late.")
    for _ in range(2):
        job_limits.enforce(cluster_id=world.cluster.pk, now=deadline + after)
    assert Job.objects.get(pk=job.pk).deadline_told == told
    (event,) = JobEvent.objects.filter(job=job, kind__startswith="deadline")
    assert (event.kind, "It is late." in event.text) == (f"deadline_{told}", True)


def test_of_a_deadline_that_another_process_told_of_nobody_is_told_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    deadline = timezone.now() + timedelta(hours=1)
    job = train(world, deadline=deadline.isoformat())

    def meanwhile(seen: Job, ctx: Any) -> str:
        Job.objects.filter(pk=seen.pk).update(deadline_told="passed")
        return "It is late."

    monkeypatch.setattr(job_limits, "deadline_sentence", meanwhile)
    job_limits.enforce(cluster_id=world.cluster.pk, now=deadline + SECOND)
    assert not JobEvent.objects.filter(job=job, kind="deadline_passed").exists()


# Time in training ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("beyond", "earlier_s", "ended"),
    [
        (-MICRO, 0.0, False),
        (timedelta(), 0.0, True),
        (SECOND, 0.0, True),
        (-101 * SECOND, 100.0, False),
        (-100 * SECOND, 100.0, True),
    ],
)
def test_who_trains_longer_than_it_may_is_ended_with_some_slack(
    world: World, beyond: timedelta, earlier_s: float, ended: bool
) -> None:
    job = train(world, max_duration=600, retry={"limit": 0})
    slack = timedelta(seconds=job_limits.DURATION_SLACK_S + 2 * report_interval.interval_s())
    since = timezone.now()
    Run.objects.filter(job=job).update(state_since=since, running_s=earlier_s)
    JobEvent.objects.filter(job=job, kind="changed").delete()
    job_limits.end_overdue(cluster_id=world.cluster.pk, now=since + timedelta(seconds=600) + slack + beyond)
    assert (world.state(job) is State.FAILED) == ended


def test_a_limit_that_was_just_changed_counts_from_then(world: World) -> None:
    job = train(world, max_duration=600, retry={"limit": 0})
    later = timezone.now() + timedelta(hours=2)
    JobEvent.objects.create(kind="changed", job=job, run=job.run, project=world.project, at=later, text="changed")
    job_limits.end_overdue(cluster_id=world.cluster.pk, now=later + SECOND)
    assert world.state(job) is State.RUNNING_PROTECTED or world.state(job) is State.RUNNING
    job_limits.end_overdue(cluster_id=world.cluster.pk, now=later + timedelta(hours=1))
    assert world.state(job) is State.FAILED


@pytest.mark.parametrize(("upload_s", "ended"), [(0.0, True), (60.0, False)])
def test_who_uploads_its_last_checkpoint_has_longer(
    world: World, monkeypatch: pytest.MonkeyPatch, upload_s: float, ended: bool
) -> None:
    monkeypatch.setattr(job_limits, "upload_s", lambda cluster_id: upload_s)
    job = train(world, max_duration=600, retry={"limit": 0})
    later = timezone.now() + timedelta(
        seconds=600 + job_limits.DURATION_SLACK_S + 2 * report_interval.interval_s() + 30
    )
    job_limits.end_overdue(cluster_id=world.cluster.pk, now=later)
    assert (world.state(job) is State.FAILED) is ended


def test_only_jobs_of_the_cluster_are_ended_and_told_of(world: World) -> None:
    deadline = timezone.now() + timedelta(hours=1)
    job = train(world, max_duration=600, retry={"limit": 0}, deadline=deadline.isoformat())
    other = Cluster.objects.create(name="other")
    for act in (job_limits.end_overdue, job_limits.enforce):
        act(cluster_id=other.pk, now=deadline + timedelta(hours=9))
    assert world.state(job) is State.RUNNING_PROTECTED or world.state(job) is State.RUNNING
    assert Job.objects.get(pk=job.pk).deadline_told == ""


def test_of_a_deadline_that_will_be_kept_nothing_is_said(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    deadline = timezone.now() + timedelta(hours=1)
    job = train(world, deadline=deadline.isoformat())
    monkeypatch.setattr(job_limits, "deadline_sentence", lambda job, ctx: None)
    job_limits.enforce(cluster_id=world.cluster.pk, now=deadline - SECOND)
    assert Job.objects.get(pk=job.pk).deadline_told == ""
    assert not JobEvent.objects.filter(kind__startswith="deadline").exists()


def test_nobody_elses_limit_is_looked_at(world: World) -> None:
    other = Project.objects.create(key="speech", name="Speech")
    Quota.objects.create(project=other, user=User.objects.get(), kind="gpu_hours", period="day", limit=10)
    job = UUID(int=1)
    ledger.record_holds([ledger.Held(world.project.pk, world.user.pk, job, job, 1, "k1", START, START + 20 * SECOND)])
    give_notices(START + timedelta(hours=1))
    assert not BudgetNotice.objects.exists()
