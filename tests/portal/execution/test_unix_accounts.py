"""UNIX accounts of people: who sets them, what they can never be, and what follows where jobs run as people."""

from __future__ import annotations

import os
import pwd
from typing import Any

import pytest
from django.core.cache import cache
from django.utils import timezone

from accounts.models import AuditEntry, User
from accounts.people import create_service_account
from accounts.unix_accounts import follow_claim
from portal.jobs.identity import account_of
from portal.jobs.models import Job
from tests.portal.api_calls import Api
from tests.portal.world import World

pytestmark = pytest.mark.django_db

KNOWN = {"alice": 1001, "ana": 1002, "bob": 1003, "root": 0, "daemon": 1, "sshd": 999, "portal": os.geteuid() or 5000}


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    def getpwnam(name: str) -> pwd.struct_passwd:
        if name == "wheel":
            return pwd.struct_passwd((name, "x", 1009, 0, "", "/", "/bin/sh"))
        uid = KNOWN[name.lower()]  # some directories do not mind
        return pwd.struct_passwd((name.lower(), "x", uid, uid, "", f"/home/{name}", "/bin/sh"))

    monkeypatch.setattr("accounts.unix_accounts.pwd.getpwnam", getpwnam)
    cache.clear()


@pytest.fixture
def as_people(settings: Any, world: World) -> None:
    name = settings.EVENKEEL_EXECUTOR
    own = settings.EVENKEEL_EXECUTOR_OPTIONS.get(name, {})
    settings.EVENKEEL_EXECUTOR_OPTIONS = settings.EVENKEEL_EXECUTOR_OPTIONS | {name: own | {"run_as": "person"}}


def set_to(root: Api, user: User, name: str) -> Any:
    return root.patch(f"people/{user.pk}", {"unix_account": name})


def test_an_administrator_sets_changes_and_takes_it_and_it_is_written_down(world: World, root: Api) -> None:
    assert root.get(f"people/{world.user.pk}").json["unix_account"] is None
    answer = set_to(root, world.user, "alice")
    assert (answer.json["unix_account"], answer.json["unix_account_by"]) == ("alice", "administrator")
    assert set_to(root, world.user, "").json["unix_account"] is None
    entries = AuditEntry.objects.filter(action="user.unix_account").order_by("pk")
    assert [(one.detail["before"], one.detail["now"]) for one in entries] == [("", "alice"), ("alice", "")]
    assert {one.target for one in entries} == {world.user.email}


def test_nobody_else_may(world: World) -> None:
    assert Api(world.user).patch(f"people/{world.user.pk}", {"unix_account": "alice"}).status == 403
    world.user.refresh_from_db()
    assert world.user.unix_account == ""


@pytest.mark.parametrize(
    "name",
    ["root", "daemon", "sshd", "wheel", "nobody-here", "-x", "a b", "a;b", "../alice", "al\nice", "Alice", "a" * 32,
     "ålice", "1alice"],
)  # fmt: skip
def test_it_is_never_a_systems_nor_what_is_no_name(world: World, root: Api, name: str) -> None:
    answer = set_to(root, world.user, name)
    assert answer.status == 400
    assert answer.json["errors"][0]["field"] == "unix_account"
    world.user.refresh_from_db()
    assert world.user.unix_account == ""


def test_it_is_never_the_portals_own(world: World, root: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("accounts.unix_accounts.os.geteuid", lambda: KNOWN["alice"])
    assert "portal's own" in set_to(root, world.user, "alice").json["detail"]


def test_two_people_do_not_have_the_same(world: World, root: Api) -> None:
    other = User.objects.create_user("bea@example.org", "x")
    assert set_to(root, world.user, "alice").status == 200
    answer = set_to(root, other, "alice")
    assert answer.status == 400
    assert f"is {world.user.email}'s" in answer.json["detail"]


def test_the_name_of_a_proved_address_is_suggested_and_counts_once_confirmed(world: World, root: Api) -> None:
    user = world.user
    assert root.get(f"people/{user.pk}").json["unix_account_suggestion"] is None  # anybody may have claimed it
    User.objects.filter(pk=user.pk).update(address_proved_at=timezone.now(), address_proved_by="mail")
    found = root.get(f"people/{user.pk}").json
    assert (found["unix_account_suggestion"], found["unix_account"]) == ("ana", None)
    found = set_to(root, user, "ana").json
    assert (found["unix_account"], found["unix_account_by"]) == ("ana", "same_name")
    assert found["unix_account_suggestion"] is None


def test_the_providers_claim_is_followed_unless_an_administrator_has_set_one(world: World, root: Api) -> None:
    user = world.user
    for said, kept in (("bob", "bob"), ("root", "bob"), ("nobody-here", "bob"), ("alice", "alice"), ("", "")):
        follow_claim(user=user, name=said)
        user.refresh_from_db()
        assert user.unix_account == kept
    set_to(root, user, "alice")
    for said in ("bob", ""):
        user.refresh_from_db()
        follow_claim(user=user, name=said)
        user.refresh_from_db()
        assert (user.unix_account, user.unix_account_by) == ("alice", "administrator")


WISH = {"command": "id", "total_steps": 10, "batch_size": 1}


def test_who_has_none_is_told_at_submission_and_in_the_preview(world: World, root: Api, as_people: None) -> None:
    for path in ("jobs", "jobs/preview"):
        answer = Api(world.user).post(path, {"project": world.project.key, **WISH})
        assert answer.status == 400, answer.json
        assert "you have none here: ask an administrator to set one" in answer.json["detail"]
    assert not Job.objects.exists()
    set_to(root, world.user, "alice")
    answer = Api(world.user).post("jobs", {"project": world.project.key, **WISH})
    assert answer.status == 201, answer.json
    assert account_of(Job.objects.get()) == "alice"


def test_an_account_that_is_gone_is_said(world: World, root: Api, as_people: None) -> None:
    User.objects.filter(pk=world.user.pk).update(unix_account="moved")
    answer = Api(world.user).post("jobs", {"project": world.project.key, **WISH})
    assert answer.status == 400
    assert "your account moved does not exist" in answer.json["detail"]


def test_where_jobs_run_as_the_portal_nobody_needs_one(world: World, root: Api) -> None:
    set_to(root, world.user, "alice")
    assert Api(world.user).post("jobs", {"project": world.project.key, **WISH}).status == 201
    assert account_of(Job.objects.get()) == ""
    assert Api(world.user).get("session").json["runs_as_person"] is False


def test_a_service_account_has_what_an_administrator_sets(world: World, root: Api, as_people: None) -> None:
    robot = create_service_account(actor=world.user, project=world.project, name="ci", role="member")
    assert Api(robot).post("jobs", {"project": world.project.key, **WISH}).status == 400
    assert set_to(root, robot, "bob").json["unix_account"] == "bob"
    assert Api(robot).post("jobs", {"project": world.project.key, **WISH}).status == 201
    assert account_of(Job.objects.get()) == "bob"
    assert Api(robot).get("session").json["runs_as_person"] is True
