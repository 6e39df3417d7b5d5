"""Limits over the API: who may read and set them, what they refuse, and that nobody slips past."""

from __future__ import annotations

import threading
from datetime import timedelta
from fractions import Fraction
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from accounts.models import AuditEntry, BudgetNotice, Membership, Project, Quota, User
from accounts.quotas import amount, period_of, refusal, spent_sentence
from portal.accounting.budgets import give_notices
from portal.api.money import quotas
from portal.jobs.models import Hold, Job, JobEvent
from scheduling.lifecycle import State
from tests.cases import in_turn
from tests.portal.api_calls import Api
from tests.portal.world import World

pytestmark = pytest.mark.django_db
FILE: dict[str, Any] = {"command": "train", "project": "vision", "total_steps": 1000, "throughput": {"k1": [10.0]}}


def above(world: World) -> Project:
    top = Project.objects.create(key="lab", name="Lab")
    Project.objects.filter(pk=world.project.pk).update(parent=top)
    return top


def person(name: str, project: Project | None = None, role: str = "member") -> User:
    user = User.objects.create_user(f"{name}@example.org", "correct horse battery")
    if project is not None:
        Membership.objects.create(project=project, user=user, role=role)
    return user


def at_level(world: World, level: str) -> dict[str, Any]:
    places: dict[str, dict[str, Any]] = {
        "project": {"project": world.project},
        "above": {"project": above(world)},
        "user": {"user": world.user},
        "member": {"user": world.user, "project": world.project},
    }
    return places[level]


# What hard limits refuse -----------------------------------------------------------------------------


@in_turn(("kind", "words"), [("queued_jobs", "queued job"), ("running_jobs", "running job")])
@in_turn("level", ["project", "above", "user", "member"])
def test_a_hard_limit_is_named_with_its_level_and_use(
    world: World, api: Api, kind: str, words: str, level: str
) -> None:
    where = at_level(world, level)
    Quota.objects.create(kind=kind, limit=1, hard=True, **where)
    assert api.post("jobs", FILE).status == 201
    refused = api.post("jobs", FILE)
    assert (refused.status, refused.fields) == (409, ["project"])
    names = {"project": "project Vision", "above": "project Lab", "user": "user ana@example.org"}
    name = names.get(level, "user ana@example.org in project Vision")
    assert refused.json["detail"] == f"The limit of 1 {words} on {name} is reached: 1 in use, and this is one more."
    assert refused.json["errors"][0]["code"] == "quota"


def test_hard_gpus_count_what_was_let_in(world: World, api: Api) -> None:
    Quota.objects.create(project=world.project, limit=5, hard=True)
    Quota.objects.create(project=world.project, limit=3, hard=True, accelerator_type="k1")
    k1 = FILE | {"gpus": {"min": 2, "max": 2, "types": ["k1"]}}
    assert api.post("jobs", k1).status == 201
    refused = api.post("jobs", k1)
    assert "limit of 3 k1 GPUs at once on project Vision has 2 in use, and this job needs 2 more" in refused.text
    assert api.post("jobs", FILE | {"gpus": {"min": 3, "max": 3}}).status == 201  # of any type
    assert api.post("jobs", FILE).status == 409


def test_another_persons_limit_is_not_mine(world: World, api: Api) -> None:
    Quota.objects.create(user=person("bo", world.project), kind="queued_jobs", limit=0, hard=True)
    assert api.post("jobs", FILE).status == 201


def spend(world: World, hours: float) -> None:
    """A finished job held a GPU for so long, in this hour."""
    job = world.submit(gpus={"max": 1})
    world.train(job)
    for hold in Hold.objects.filter(during__upper_inf=True):
        start = timezone.now() - timedelta(hours=hours)
        Hold.objects.filter(pk=hold.pk).update(during=(start, None))
    world.gone(job, "done", step=1000)


@in_turn(("written", "kept"), [("1.097", 3_949), ("2", 7_200), ("0.0003", 1)])
def test_gpu_hours_are_kept_in_whole_seconds(world: World, written: str, kept: int) -> None:
    boss = Api(User.objects.create_superuser("root@example.org", "x"))
    wish = {"user": "ana@example.org", "kind": "gpu_hours", "period": "week", "limit": written}
    assert boss.post("limits", wish).status == 201
    assert Quota.objects.get(kind="gpu_hours").limit == kept
    little = boss.post("limits", wish | {"period": "day", "limit": "0.0001"})
    assert little.status == 400
    assert "at least a second of a GPU, 1/3600 h; 0.0001 h is less" in little.text


@in_turn(
    ("kind", "period", "limit", "said"),
    [
        ("gpus", "", 1, "1 GPU at once"),
        ("gpus", "", 2, "2 GPUs at once"),
        ("running_jobs", "", 1, "1 running job"),
        ("gpu_hours", "week", 3_600, "1 GPU-hour per week"),
        ("money", "month", 360_000, "0.36 USD per month"),
    ],
)
def test_limits_are_worded_for_people(kind: str, period: str, limit: int, said: str) -> None:
    assert amount(Quota(kind=kind, period=period, limit=limit), "USD").lower() == said.lower()


@in_turn(
    ("limit", "used", "said"),
    [
        (50_000, 50_000, "The limit of 0.05 USD per month on project Vision is reached: 0.05 USD used."),
        (50_000, 64_000, "0.05 USD per month on project Vision is reached: 0.06 USD used, 0.01 USD more than it."),
        (55_000, 55_400, "0.055 USD per month on project Vision is reached: 0.055 USD used."),
        (
            50_000,
            40_000,
            "counts as reached: 0.04 USD used, the rest is kept for jobs to write a checkpoint and leave.",
        ),
    ],
)
def test_use_and_limit_of_money_agree(world: World, limit: int, used: int, said: str) -> None:
    row = Quota(project=world.project, kind="money", period="month", limit=limit, hard=True)
    waits = spent_sentence(row, Fraction(used), timezone.now(), "USD", closed=True)
    refused = refusal(row, Fraction(used), min_gpus=1, types=[], currency="USD", closed=True)
    assert said in str(waits)
    assert said in str(refused)
    assert "this job uses would come on top" in str(refused)


def now_in_a_period(monkeypatch: pytest.MonkeyPatch) -> None:
    """The day's end, so that hours before it lie within the day."""
    late = timezone.now().replace(hour=23, minute=30)
    monkeypatch.setattr(timezone, "now", lambda: late)


@in_turn(
    ("kind", "limit", "said"),
    [("gpu_hours", 2 * 3600, "2 GPU-hours per day"), ("money", 2_000_000, "of 2.00 USD per day")],
)
def test_a_hard_period_refuses_and_a_soft_one_waits_until_it_ends(
    world: World, api: Api, monkeypatch: pytest.MonkeyPatch, kind: str, limit: int, said: str
) -> None:
    now_in_a_period(monkeypatch)
    quota = Quota.objects.create(project=above(world), kind=kind, period="day", limit=limit)
    spend(world, 3)
    waiting = world.submit()
    world.round()
    run = world.run(waiting)
    assert (State(run.state), run.reason_token) == (State.WAITING_FOR_INITIAL_RESOURCE, "quota_period")
    end = period_of("day", timezone.now())[1]
    assert said in run.reason_text
    assert "project Lab" in run.reason_text
    assert f"{end:%Y-%m-%d %H:%M}" in run.reason_text
    Quota.objects.filter(pk=quota.pk).update(hard=True)
    refused = api.post("jobs", FILE)
    assert refused.status == 409
    assert said in refused.json["detail"]
    Quota.objects.filter(pk=quota.pk).update(limit=100 * limit)
    world.round()
    assert world.state(waiting) is State.LAUNCHING


@in_turn(("hard", "state", "gpus"), [(False, State.RUNNING, 2), (True, State.CHECKPOINTING, 0)])
def test_a_running_job_keeps_its_gpus_when_a_soft_budget_is_used_up(
    world: World, monkeypatch: pytest.MonkeyPatch, hard: bool, state: State, gpus: int
) -> None:
    now_in_a_period(monkeypatch)
    job = world.submit(gpus={"max": 2})
    world.train(job)
    Quota.objects.create(project=world.project, kind="money", period="day", limit=0, hard=hard)
    Job.objects.filter(pk=job.pk).update(max_gpus=4)
    world.round()
    assert (world.state(job), world.gpus(job)) == (state, gpus)


@in_turn("kind", ["gpus", "running_jobs", "queued_jobs"])
def test_soft_limits_above_make_jobs_wait_with_the_level(world: World, kind: str) -> None:
    Quota.objects.create(project=above(world), kind=kind, limit=1)
    jobs = [world.submit(gpus={"max": 1}) for _ in range(2)]
    world.round()
    assert [world.state(job) for job in jobs] == [State.LAUNCHING, State.WAITING_FOR_INITIAL_RESOURCE]
    assert "Project Lab may" in world.run(jobs[1]).reason_text


# Fifty at once -----------------------------------------------------------------------------------------


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(("kind", "level"), [("queued_jobs", "above"), ("running_jobs", "user"), ("gpus", "project")])
def test_fifty_at_once_against_a_limit_of_ten_leave_ten(world: World, kind: str, level: str) -> None:
    where = at_level(world, level)
    Quota.objects.create(kind=kind, limit=10, hard=True, **where)
    Quota.objects.create(kind="running_jobs", limit=1_000, hard=True, project=world.project)
    api, statuses, start = Api(world.user), list[int](), threading.Barrier(50)

    def submit() -> None:
        try:
            start.wait(60)
            statuses.append(api.post("jobs", FILE).status)
        finally:
            connection.close()

    threads = [threading.Thread(target=submit) for _ in range(50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert sorted(statuses) == [201] * 10 + [409] * 40
    assert Job.objects.count() == 10


def test_without_limits_a_submission_locks_no_quota(world: World, api: Api, django_assert_num_queries: Any) -> None:
    Quota.objects.create(project=Project.objects.create(key="else", name="Else"), limit=1, hard=True)
    with connection.execute_wrapper(_no_lock):
        assert api.post("jobs", FILE).status == 201


def _no_lock(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
    assert not ("accounts_quota" in sql and "FOR " in sql.upper().split("WHERE")[-1])
    return execute(sql, params, many, context)


# Reading and setting -----------------------------------------------------------------------------------


def test_everybody_reads_what_binds_them(world: World, api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    top = above(world)
    other = person("bo", world.project)
    Quota.objects.create(project=top, limit=8)
    Quota.objects.create(user=world.user, kind="running_jobs", limit=4)
    Quota.objects.create(project=world.project, user=world.user, kind="money", period="month", limit=2_500_000)
    Quota.objects.create(user=other, limit=1)
    world.train(world.submit())
    answer = api.get("projects/vision/limits").json
    rows = answer["results"]
    assert answer["more"] is False
    assert [(row["level"], row["limit"], row["used"]) for row in rows] == [
        ("project Lab", "8", "4"),
        ("user ana@example.org in project Vision", "2.5", rows[1]["used"]),
        ("user ana@example.org", "4", "1"),
    ]
    assert rows[1]["period_ends_at"]
    monkeypatch.setattr(quotas, "MOST", 2)
    answer = api.get("projects/vision/limits").json
    assert ([row["level"] for row in answer["results"]], answer["more"]) == ([row["level"] for row in rows[:2]], True)
    assert Api(person("eve")).get("projects/vision/limits").status == 404
    assert Api(person("eve2")).get("limits").json["results"] == []


WISH = {"kind": "gpus", "limit": "3"}


@in_turn(
    ("role", "where", "status"),
    [
        ("viewer", {"project": "vision"}, 403),
        ("member", {"project": "vision"}, 403),
        ("manager", {"project": "vision"}, 201),  # manager of the project above
        ("manager", {"project": "lab"}, 403),
        ("manager", {"project": "vision", "user": "ana@example.org"}, 201),
        ("manager", {"project": "lab", "user": "ana@example.org"}, 201),
        ("manager", {"project": "lab", "user": "stranger@example.org"}, 400),
        ("manager", {"user": "ana@example.org"}, 403),
        ("manager", {"project": "hidden"}, 404),
        ("manager", {"project": "no-such"}, 404),
        ("member", {"project": "vision", "user": "ana@example.org"}, 403),
    ],
)
def test_managers_set_limits_below_their_projects(world: World, role: str, where: dict[str, str], status: int) -> None:
    top = above(world)
    Project.objects.create(key="hidden", name="Hidden")
    person("stranger")
    api = Api(person("boss", top, role))
    made = api.post("limits", WISH | where)
    assert made.status == status
    assert Quota.objects.count() == (status == 201)
    assert AuditEntry.objects.filter(action="quota.create").count() == (status == 201)


def test_administrators_set_limits_anywhere_and_change_and_remove_them(world: World, api: Api) -> None:
    boss = Api(User.objects.create_superuser("root@example.org", "x"))
    made = boss.post("limits", {"user": "ana@example.org", "kind": "gpu_hours", "period": "week", "limit": "1.5"})
    assert (made.status, made.json["limit"], made.json["used"]) == (201, "1.5", "0")
    again = {"user": "ana@example.org", "kind": "gpu_hours", "period": "week", "limit": "2"}
    assert boss.post("limits", again).status == 409
    address = f"limits/{made.json['id']}"
    tag = boss.get(address).headers["ETag"]
    changed = boss.request("PUT", address, {"limit": "2", "hard": True}, If_Match=tag)
    assert (changed.status, changed.json["limit"], changed.json["hard"]) == (200, "2", True)
    assert boss.request("PUT", address, {"limit": "3"}, If_Match=tag).status == 412
    assert boss.request("PUT", address, {"limit": "4"}).json["hard"] is True  # as it was
    assert api.request("PUT", address, {"limit": "3"}).status == 404
    assert api.delete(address).status == 404
    assert boss.delete(address).status == 204
    actions = AuditEntry.objects.filter(action__startswith="quota.").order_by("pk").values_list("action", flat=True)
    assert list(actions) == ["quota.create", "quota.change", "quota.change", "quota.delete"]


@in_turn(
    ("wish", "field"),
    [
        ({"kind": "gpus", "limit": "1.5", "project": "vision"}, "limit"),
        ({"kind": "gpus", "limit": "-1", "project": "vision"}, "limit"),
        ({"kind": "gpus", "limit": "1", "project": "vision", "period": "day"}, "body"),
        ({"kind": "money", "limit": "1", "project": "vision"}, "body"),
        ({"kind": "money", "limit": "1", "project": "vision", "period": "day", "accelerator_type": "k1"}, "body"),
        ({"kind": "gpus", "limit": "1"}, "body"),
        ({"kind": "gpus", "limit": "1", "project": "vision", "accelerator_type": "titan_px"}, "accelerator_type"),
        ({"kind": "gpus", "limit": "1", "user": "nobody@example.org"}, "user"),
    ],
)
def test_a_wrong_limit_is_refused(world: World, wish: dict[str, str], field: str) -> None:
    refused = Api(User.objects.create_superuser("root@example.org", "x")).post("limits", wish)
    assert refused.status == 400
    assert refused.fields
    assert not Quota.objects.exists()


# Notices -------------------------------------------------------------------------------------------------


def test_people_are_told_once_at_each_share_of_a_budget(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    now_in_a_period(monkeypatch)
    spend(world, 1)  # 1.23 of 1.5
    Quota.objects.create(project=world.project, kind="money", period="day", limit=1_500_000)
    for _ in range(3):
        give_notices(timezone.now())
    (event,) = JobEvent.objects.filter(kind="budget")
    assert event.project == world.project
    assert "80 % of the 1.50 USD per day on project Vision are used: 1.23 USD" in event.text
    Quota.objects.update(limit=1_000_000)
    give_notices(timezone.now())
    assert list(BudgetNotice.objects.order_by("percent").values_list("percent", flat=True)) == [80, 100]
    give_notices(timezone.now() + timedelta(days=1))
    assert JobEvent.objects.filter(kind="budget").count() == 2


def test_what_is_shown_sent_back_is_the_same_limit(world: World) -> None:
    boss = Api(User.objects.create_superuser("root@example.org", "x"))
    row = Quota.objects.create(project=world.project, kind="gpu_hours", period="day", limit=1000)
    shown = boss.get(f"limits/{row.pk}").json["limit"]
    assert shown == "0.277777"
    assert boss.request("PUT", f"limits/{row.pk}", {"limit": shown, "hard": True}).status == 200
    row.refresh_from_db()
    assert (row.limit, row.hard) == (1000, True)
