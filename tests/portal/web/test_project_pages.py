"""What the pages of projects, budgets, people and prices ask for: sums over a tree, filters, and who sees how much."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from allauth.usersessions.models import UserSession
from django.core.cache import cache
from django.test import Client
from django.urls import resolve
from django.utils import timezone

from accounts.models import AuditEntry, Discount, Membership, Project, Quota, Rate, User
from accounts.people import create_service_account
from portal.jobs.models import Hold
from portal.web import views
from tests.portal.api.test_api_access import GOOD, Browser
from tests.portal.api_calls import Api
from tests.portal.world import World

pytestmark = pytest.mark.django_db
MILLION = 10**6


@pytest.fixture
def world() -> World:
    cache.clear()
    return World()


@pytest.fixture
def lab(world: World) -> Project:
    """The project above Vision."""
    top = Project.objects.create(key="lab", name="The Lab")
    Project.objects.filter(pk=world.project.pk).update(parent=top)
    return top


def person(name: str, project: Project | None = None, role: str = "member", **more: Any) -> User:
    user = User.objects.create_user(f"{name}@example.org", "correct horse battery", **more)
    if project:
        Membership.objects.create(user=user, project=project, role=role)
    return user


def rows(api: Api, path: str) -> list[dict[str, Any]]:
    answer = api.get(path)
    assert answer.status == 200, answer.text
    found: list[dict[str, Any]] = answer.json["results"]
    return found


# Projects ---------------------------------------------------------------------------------------------


def test_a_project_holds_what_is_held_below_it(world: World, lab: Project) -> None:
    Quota.objects.create(project=lab, kind="money", period="month", limit=2_500_000)
    Quota.objects.create(project=lab, kind="money", period="week", limit=1)
    Quota.objects.create(project=lab, user=world.user, kind="money", period="month", limit=1)
    world.train(world.submit())
    world.submit()
    found = {row["key"]: row for row in rows(Api(person("boss", lab, "manager")), "projects")}
    top, vision = found["lab"], found["vision"]
    assert (top["gpus_allocated"], top["jobs_running"], top["jobs_queued"]) == (0, 0, 0)
    assert {**top["with_below"], "spend_month": ""} == {
        "gpus_allocated": 4,
        "gpus_held": 4,
        "jobs_running": 1,
        "jobs_queued": 1,
        "spend_month": "",
    }
    assert (vision["with_below"]["gpus_allocated"], vision["gpus_allocated"]) == (4, 4)
    assert (top["budget_month"], vision["budget_month"]) == ("2.5", None)


def test_what_is_spent_below_is_spent_above(world: World, lab: Project, root: Api) -> None:
    world.train(world.submit())
    Hold.objects.update(during=(timezone.now() - timedelta(hours=1), None))
    found = {row["key"]: row for row in rows(root, "projects")}
    assert float(found["vision"]["spend_month"]) > 0
    assert found["lab"]["spend_month"] == "0.00"
    assert found["lab"]["with_below"]["spend_month"] == found["vision"]["spend_month"]


def test_members_are_people_wherever_their_role_comes_from(world: World, lab: Project, root: Api) -> None:
    person("boss", lab, "manager")
    both = person("both", lab, "viewer")
    Membership.objects.create(user=both, project=world.project, role="member")
    person("gone", lab, is_active=False)
    create_service_account(actor=both, project=world.project, name="ci", role="member")
    counts = {row["key"]: row["members"] for row in rows(root, "projects")}
    assert counts == {"lab": 2, "vision": 3}


def test_projects_are_found_by_name_and_key_and_archived_ones_apart(world: World, lab: Project, root: Api) -> None:
    Project.objects.create(key="old", name="Old vision", archived_at=timezone.now())

    def keys(query: str) -> list[str]:
        return sorted(row["key"] for row in rows(root, f"projects?{query}"))

    assert keys("search=VISI") == ["old", "vision"]
    assert keys("search=lab&archived=false") == ["lab"]
    assert keys("archived=true") == ["old"]
    assert keys("archived=false") == ["lab", "vision"]
    assert rows(Api(person("eve")), "projects?search=vision") == []


def test_the_path_names_only_what_i_may_see(world: World, lab: Project) -> None:
    org = Project.objects.create(key="org", name="Org")
    Project.objects.filter(pk=lab.pk).update(parent=org)
    boss = Api(person("boss", lab, "manager"))
    assert boss.get("projects/vision").json["path"] == [{"key": "lab", "name": "The Lab", "role": "manager"}]
    assert boss.get("projects/lab").json["path"] == []
    assert Api(world.user).get("projects/vision").json["path"] == []
    top = person("top", org, "viewer")
    Membership.objects.create(user=top, project=lab, role="manager")
    path = Api(top).get("projects/vision").json["path"]
    assert [(one["key"], one["role"]) for one in path] == [("org", "viewer"), ("lab", "manager")]


# Budgets ----------------------------------------------------------------------------------------------


def test_budgets_are_those_that_bind_me_each_once(world: World, lab: Project) -> None:
    other = person("bo", world.project)
    hidden = Project.objects.create(key="hidden", name="Hidden")
    money = {"kind": "money", "period": "month", "limit": 5 * MILLION}
    Project.objects.create(key="faces", name="Faces", parent=world.project)
    for where in ({"project": lab}, {"project": world.project, "user": world.user}, {"user": world.user}):
        Quota.objects.create(**where, **money)
    for where in ({"project": hidden}, {"project": world.project, "user": other}, {"user": other}):
        Quota.objects.create(**where, **money)
    Quota.objects.create(project=world.project, kind="gpus", limit=4)
    Quota.objects.create(project=world.project, kind="gpu_hours", period="week", limit=3_600)
    levels = [(row["level"], row["kind"]) for row in rows(Api(world.user), "budgets")]
    assert levels == [
        ("project Vision", "gpu_hours"),
        ("user ana@example.org", "money"),
        ("user ana@example.org in project Vision", "money"),
        ("project The Lab", "money"),
    ]


def test_budgets_of_one_project_leave_out_those_of_others(world: World) -> None:
    speech = Project.objects.create(key="speech", name="Speech")
    Membership.objects.create(user=world.user, project=speech)
    for project in (speech, world.project):
        Quota.objects.create(project=project, kind="money", period="day", limit=MILLION)
    api = Api(world.user)
    assert [row["project"] for row in rows(api, "budgets?project=speech")] == ["speech"]
    Project.objects.create(key="hidden", name="Hidden")
    assert api.get("budgets?project=hidden").status == 404


@pytest.mark.parametrize(("period", "days"), [("day", (1,)), ("week", (7,)), ("month", (28, 29, 30, 31))])
def test_a_budget_says_when_its_period_began(world: World, period: str, days: tuple[int, ...]) -> None:
    Quota.objects.create(project=world.project, kind="money", period=period, limit=MILLION)
    (row,) = rows(Api(world.user), "budgets")
    starts, ends = (datetime.fromisoformat(row[f"period_{end}_at"]) for end in ("starts", "ends"))
    assert starts <= timezone.now() < ends
    assert round((ends - starts) / timedelta(days=1)) in days


# People -----------------------------------------------------------------------------------------------


def test_people_are_shown_with_where_they_were_given_a_role(world: World, lab: Project, root: Api) -> None:
    Membership.objects.create(user=world.user, project=lab, role="viewer")
    (ana,) = rows(root, "people?search=ana")
    assert ana["projects"] == [
        {"key": "vision", "name": "Vision", "role": "member"},
        {"key": "lab", "name": "The Lab", "role": "viewer"},
    ]
    assert ana["more_projects"] is False
    for n in range(20):
        Membership.objects.create(user=world.user, project=Project.objects.create(key=f"p{n}", name="P"))
    ana = root.get(f"people/{world.user.pk}").json
    assert (len(ana["projects"]), ana["more_projects"]) == (20, True)


def test_people_are_listed_apart_from_service_accounts(world: World, root: Api) -> None:
    create_service_account(actor=world.user, project=world.project, name="ci", role="member")
    assert {row["kind"] for row in rows(root, "people?kind=person")} == {"person"}
    assert [row["name"] for row in rows(root, "people?kind=service")] == ["ci"]
    assert root.get("people?kind=robot").fields == ["kind"]


def test_an_administrator_ends_all_sessions_of_somebody(world: World, root: Api) -> None:
    browsers = [Browser(), Browser()]
    for browser in browsers:
        assert browser.send("post", "session", GOOD).status_code == 200
    tokens = Api(world.user)
    assert tokens.delete(f"people/{world.user.pk}/sessions").status == 403
    assert root.delete(f"people/{world.user.pk}/sessions").json == {"ended": 2}
    assert [browser.send("get", "jobs").status_code for browser in browsers] == [401, 401]
    assert not UserSession.objects.filter(user=world.user).exists()
    assert tokens.get("jobs").status == 200
    entry = AuditEntry.objects.get(action="session.end_all")
    assert (entry.actor_email, entry.target, entry.detail) == ("root@example.org", "ana@example.org", {"ended": 2})
    assert browsers[0].send("post", "session", GOOD).status_code == 200


# Prices -----------------------------------------------------------------------------------------------


def test_prices_in_force_and_to_come_are_listed_apart_from_those_that_were(world: World, root: Api) -> None:
    now = timezone.now()
    price = {"accelerator_type": "k2", "price_micro_per_hour": 1}
    old = Rate.objects.create(**price, valid_from=now - timedelta(days=9), valid_to=now - timedelta(days=1))
    held = Rate.objects.create(**price, valid_from=now - timedelta(days=1), valid_to=now + timedelta(days=1))
    later = Rate.objects.create(**price, valid_from=now + timedelta(days=1))

    def found(query: str) -> list[int]:
        return [row["id"] for row in rows(root, f"prices?accelerator_type=k2&{query}")]

    assert found("ended=false") == [later.pk, held.pk]
    assert found("ended=true") == [old.pk]
    assert found("") == [later.pk, held.pk, old.pk]


def test_discounts_in_force_are_listed_apart_from_those_that_were(world: World, root: Api) -> None:
    now = timezone.now()
    of = {"project": world.project, "percent_hundredths": 500}
    old = Discount.objects.create(**of, valid_from=now - timedelta(days=9), valid_to=now - timedelta(days=1))
    held = Discount.objects.create(**of, valid_from=now - timedelta(days=1))
    assert [row["id"] for row in rows(root, "discounts?ended=false")] == [held.pk]
    assert [row["id"] for row in rows(root, "discounts?ended=true")] == [old.pk]


# Addresses --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", ["people", "prices", "audit"])
def test_pages_for_administrators_are_the_front_end_s(page: str) -> None:
    assert resolve(f"/admin/{page}").func is views.index
    policy = Client().get(f"/admin/{page}")["Content-Security-Policy"]
    assert "unsafe-eval" not in policy
    assert resolve(f"/admin/{page}/").app_name == "admin"
