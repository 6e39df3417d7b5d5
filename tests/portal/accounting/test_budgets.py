"""Budgets over periods: people are told, soft ones let jobs wait, hard ones park what runs before they are crossed."""

from __future__ import annotations

from datetime import timedelta
from fractions import Fraction
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from psycopg2.extras import DateTimeTZRange

from accounts import quotas
from accounts.models import BudgetNotice, Membership, Project, Quota, User
from portal.accounting.budgets import give_notices
from portal.jobs.models import Hold, Job, JobEvent
from scheduling.lifecycle import State
from tests.portal.api_calls import Api
from tests.portal.world import World, check_invariants

pytestmark = pytest.mark.django_db
HOUR = 3_600


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    """In a period that began long ago and has long to go."""
    begin = timezone.now() - timedelta(days=1)
    monkeypatch.setattr(quotas, "period_of", lambda period, now: (begin, begin + timedelta(days=2)))
    return World(policy="fifo_gang")


def budget(world: World, **values: Any) -> Quota:
    row = {"project": world.project, "kind": "gpu_hours", "period": "day", "limit": HOUR, "hard": True}
    return Quota.objects.create(**{**row, **values})


def hold_for(job: Job, seconds: float) -> None:
    """As if it had held its GPUs for so long."""
    now = timezone.now()
    for hold in Hold.objects.filter(run__job=job, during__upper_inf=True):
        hold.during = DateTimeTZRange(now - timedelta(seconds=seconds), None)
        hold.save(update_fields=["during"])


def round_with_budgets(world: World) -> None:
    give_notices(timezone.now())
    world.round()


def leave(world: World, job: Job, step: int) -> None:
    world.checkpoint(job, step, reason="request")
    world.gone(job)


def test_a_hard_budget_parks_what_runs_before_it_is_crossed(world: World) -> None:
    row = budget(world)
    job = world.submit(gpus={"min": 2, "max": 2})
    world.train(job)
    hold_for(job, 1_700)  # 3,400 of 3,600 GPU-seconds
    round_with_budgets(world)
    assert world.state(job) is State.RUNNING
    hold_for(job, 1_796)  # 3,592: it cannot leave in time
    round_with_budgets(world)
    assert world.state(job) is State.CHECKPOINTING
    assert world.run(job).reason_token == "budget_parked"
    assert (
        "because the budget is used up: The limit of 1 GPU-hour per day on project Vision" in world.run(job).reason_text
    )
    leave(world, job, 70)
    assert Hold.objects.filter(during__upper_inf=True).count() == 0
    uses = Api(world.user).get("projects/vision/limits").json["results"][0]
    assert float(uses["used"]) <= 1.0  # it was not crossed
    assert uses["reached"] is True
    wish = {"project": "vision", "command": "train", "total_steps": 10}
    refused = Api(world.user).post("jobs", wish)
    assert (refused.status, refused.fields) == (409, ["project"])
    assert "1 GPU-hour per day on project Vision counts as reached: 0.99" in refused.json["detail"]
    for _ in range(2):  # what was left over starts nobody again
        round_with_budgets(world)
        assert world.state(job) is State.WAITING_FOR_RESOURCE
    assert world.run(job).reason_token == "quota_period"
    row.limit = 2 * HOUR
    row.save()
    assert Api(world.user).post("jobs", wish).status == 201
    round_with_budgets(world)
    assert world.state(job) is State.LAUNCHING
    assert world.run(job).checkpoint_step == 70
    check_invariants(world)


def test_it_goes_on_when_the_period_ends(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    budget(world)
    job = world.submit(gpus={"min": 2, "max": 2})
    world.train(job)
    hold_for(job, 1_800)
    round_with_budgets(world)
    leave(world, job, 10)
    begin = timezone.now() + timedelta(seconds=0.01)
    monkeypatch.setattr(quotas, "period_of", lambda period, now: (begin, begin + timedelta(days=2)))
    monkeypatch.setattr("accounts.usage.totals_since", lambda day: {})  # what was used was before
    round_with_budgets(world)
    assert world.state(job) is State.LAUNCHING


def test_a_job_that_cannot_checkpoint_goes_on(world: World) -> None:
    budget(world)
    job = world.submit(gpus={"min": 2, "max": 2}, restartable=False)
    world.train(job)
    hold_for(job, 2_000)
    round_with_budgets(world)
    assert world.state(job) is State.RUNNING


def test_a_soft_budget_lets_jobs_run_and_others_wait(world: World) -> None:
    budget(world, hard=False)
    job = world.submit(gpus={"min": 2, "max": 2})
    world.train(job)
    hold_for(job, 1_800)
    waiting = world.submit(gpus={"min": 1, "max": 1})
    round_with_budgets(world)
    assert world.state(job) is State.RUNNING
    assert world.run(waiting).reason_token == "quota_period"
    assert world.run(waiting).reason_detail["level"] == "project Vision"


@pytest.mark.parametrize("kind", ["gpu_hours", "money"])
def test_people_are_told_at_80_and_100_percent_once_and_again_after_a_raise(world: World, kind: str) -> None:
    limit = {"gpu_hours": HOUR, "money": 1_234_567}[kind]
    row = budget(world, kind=kind, limit=limit, hard=False)
    job = world.submit(gpus={"min": 2, "max": 2})
    world.train(job)

    def told() -> list[int]:
        events = JobEvent.objects.filter(kind="budget").order_by("id")
        return [event.detail["percent"] for event in events]

    for seconds, expected in ((1_000, []), (1_500, [80]), (1_600, [80]), (1_900, [80, 100]), (2_000, [80, 100])):
        hold_for(job, seconds)
        give_notices(timezone.now())
        assert told() == expected
    answer = Api(world.user).get("projects/vision/limits").json["results"][0]
    assert answer["warned_at"]
    assert answer["reached_at"]
    assert answer["used_percent"] >= 100
    row.limit = 2 * limit
    row.save()
    give_notices(timezone.now())
    assert Api(world.user).get("projects/vision/limits").json["results"][0]["reached_at"] is None
    hold_for(job, 3_000)
    give_notices(timezone.now())
    assert told() == [80, 100, 80]


def test_managers_of_the_project_above_read_of_it(world: World) -> None:
    top = Project.objects.create(key="lab", name="Lab")
    Project.objects.filter(pk=world.project.pk).update(parent=top)
    boss = User.objects.create_user("boss@example.org", "x")
    Membership.objects.create(project=top, user=boss, role="manager")
    budget(world, hard=False)
    job = world.submit(gpus={"min": 2, "max": 2})
    world.train(job)
    hold_for(job, 1_500)
    give_notices(timezone.now())
    texts = [event["text"] for event in Api(boss).get("events").json["results"] if event["kind"] == "budget"]
    assert texts == [text for text in texts if text.startswith("80 % of the 1 GPU-hour per day on project Vision")]
    assert len(texts) == 1
    assert Api(boss).get("limits?project=vision").json["results"][0]["warned_at"]


def test_notices_ask_the_database_the_same_however_many_jobs_run(world: World) -> None:
    budget(world, limit=10 * HOUR)

    def count() -> int:
        with CaptureQueriesContext(connection) as queries:
            give_notices(timezone.now())
        return len(queries)

    for _ in range(2):
        world.train(world.submit(gpus={"min": 1, "max": 1}))
    few = count()
    for _ in range(2):
        world.train(world.submit(gpus={"min": 1, "max": 1}))
    assert count() == few
    assert not BudgetNotice.objects.exists()


@pytest.mark.parametrize(
    ("gpu_seconds", "words"), [(0, "0"), (26.1, "0.00725"), (1_800, "0.5"), (4_444_441, "1,234.56")]
)
def test_what_is_used_of_a_small_budget_does_not_read_as_nothing(gpu_seconds: float, words: str) -> None:
    assert quotas.shown(Quota(kind=Quota.Kind.GPU_HOURS), Fraction(gpu_seconds)) == words
