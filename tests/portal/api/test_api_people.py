"""People, sessions and tokens through the API."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from allauth.usersessions.models import UserSession
from django.core.cache import cache
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from django.utils import timezone

from accounts import attempts
from accounts.models import ApiToken, AuditEntry, Membership, Project, User
from accounts.sessions import device_of
from tests.portal.api.test_api_access import GOOD, Browser
from tests.portal.api_calls import Api
from tests.portal.world import World

pytestmark = pytest.mark.django_db


@pytest.fixture
def world() -> Iterator[World]:
    cache.clear()
    yield World()
    cache.clear()


@pytest.fixture
def browser(world: World) -> Browser:
    browser = Browser()
    assert browser.send("post", "session", GOOD).status_code == 200
    return browser


def test_only_administrators_see_people(world: World, root: Api) -> None:
    assert Api(world.user).get("people").status == 403
    assert Api(world.user).get(f"people/{world.user.pk}").status == 403
    assert Api(world.user).patch(f"people/{world.user.pk}", {"is_admin": True}).status == 403
    assert [p["email"] for p in root.get("people?search=ANA").json["results"]] == ["ana@example.org"]
    assert [p["email"] for p in root.get("people?is_admin=true").json["results"]] == ["root@example.org"]
    assert root.get("people?is_active=false").json["results"] == []
    assert root.get("people/999999").status == 404


def test_administrators_are_made_and_unmade_but_for_the_last(world: World, root: Api) -> None:
    me = User.objects.get(email="root@example.org").pk
    assert root.patch(f"people/{me}", {"is_admin": False}).status == 409
    assert root.patch(f"people/{me}", {"is_active": False}).status == 409
    assert root.patch(f"people/{world.user.pk}", {"is_admin": True}).json["is_admin"]
    assert Api(world.user).get("people").status == 200
    assert root.patch(f"people/{me}", {"is_admin": False}).status == 200
    assert root.get("people").status == 403
    assert AuditEntry.objects.filter(action="user.admin_revoked", target="root@example.org").exists()


def test_deactivation_ends_tokens_and_sessions_and_leaves_jobs(world: World, root: Api, browser: Browser) -> None:
    api, job = Api(world.user), world.submit()
    answer = root.patch(f"people/{world.user.pk}", {"is_active": False})
    assert (answer.json["is_active"], answer.json["deactivated_at"] is None) == (False, False)
    assert api.get("jobs").status == 401
    assert browser.send("get", "jobs").status_code == 401
    assert browser.send("post", "session", GOOD).status_code == 401
    assert root.get(f"jobs/{job.number}").json["owner"]["email"] == "ana@example.org"
    root.patch(f"people/{world.user.pk}", {"is_active": True})
    assert api.get("jobs").status == 401
    assert browser.send("get", "jobs").status_code == 401
    assert browser.send("post", "session", GOOD).status_code == 200


def test_sessions_are_listed_and_ended(world: World, browser: Browser) -> None:
    other = Browser()
    other.client.defaults["HTTP_USER_AGENT"] = "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"
    other.send("post", "session", GOOD)
    sessions = browser.send("get", "sessions").json()["results"]
    assert [(s["device"], s["current"], s["address"]) for s in sessions] == [
        ("Firefox on Linux", False, "127.0.0.1"),
        ("Unknown device", True, "127.0.0.1"),
    ]
    assert browser.send("delete", f"sessions/{sessions[0]['id']}").status_code == 204
    assert other.send("get", "jobs").status_code == 401
    assert browser.send("get", "jobs").status_code == 200
    assert len(browser.send("get", "sessions").json()["results"]) == 1


def test_all_other_sessions_end_together(world: World, browser: Browser) -> None:
    others = [Browser(), Browser()]
    for other in others:
        other.send("post", "session", GOOD)
    assert browser.send("delete", "sessions").json() == {"ended": 2}
    assert [other.send("get", "jobs").status_code for other in others] == [401, 401]
    assert browser.send("get", "jobs").status_code == 200


def test_sessions_of_others_cannot_be_ended(world: World, browser: Browser) -> None:
    User.objects.create_user("eve@example.org", "correct horse battery")
    eve = Browser()
    eve.send("post", "session", GOOD | {"email": "eve@example.org"})
    mine = UserSession.objects.get(user=world.user)
    assert eve.send("delete", f"sessions/{mine.pk}").status_code == 404
    assert Api(world.user).get("sessions").status == 403


def test_when_a_session_was_seen_last_is_kept(world: World, browser: Browser) -> None:
    UserSession.objects.update(last_seen_at=timezone.now() - timedelta(hours=1))
    browser.send("get", "jobs")
    assert UserSession.objects.get().last_seen_at > timezone.now() - timedelta(minutes=1)


def test_signing_out_forgets_the_session(world: World, browser: Browser) -> None:
    browser.send("delete", "session")
    assert not UserSession.objects.exists()


@pytest.mark.parametrize(
    ("agent", "device"),
    [
        ("Mozilla/5.0 (Windows NT 10.0) AppleWebKit/537.36 Chrome/140.0 Safari/537.36 Edg/140.0", "Edge on Windows"),
        ("Mozilla/5.0 (iPhone; CPU iPhone OS 18_0 like Mac OS X) Version/18.0 Safari/604.1", "Safari on iOS"),
        ("curl/8.5.0", "curl"),
        ("", "Unknown device"),
    ],
)
def test_devices_have_names(agent: str, device: str) -> None:
    assert device_of(agent) == device


def test_many_accounts_cannot_be_tried_from_one_address(world: World) -> None:
    browser = Browser()
    for n in range(attempts.ADDRESS.attempts):
        assert attempts.wait_s("127.0.0.1", f"p{n}@example.org") == 0
    refused = browser.send("post", "session", GOOD)
    assert refused.status_code == 429
    assert int(refused["Retry-After"]) == attempts.ADDRESS.window_s


def test_one_account_cannot_be_tried_from_many_addresses(world: World) -> None:
    for n in range(attempts.ACCOUNT.attempts):
        attempts.wait_s(f"10.0.0.{n}", "ANA@example.org")
    assert Browser().send("post", "session", GOOD).status_code == 429


def test_failed_sign_ins_at_real_accounts_are_audited(world: World) -> None:
    browser = Browser()
    browser.send("post", "session", GOOD | {"password": "wrong"})
    browser.send("post", "session", GOOD | {"email": "nobody@example.org"})
    assert [e.target for e in AuditEntry.objects.filter(action="session.refused")] == ["ana@example.org"]


def test_an_address_is_the_same_in_whatever_case_it_is_written(world: World) -> None:
    signed_in = Browser().send("post", "session", GOOD | {"email": "ANA@Example.ORG"})
    assert (signed_in.status_code, signed_in.json()["user"]["email"]) == (200, "ana@example.org")
    with pytest.raises(IntegrityError), transaction.atomic():
        User.objects.create_user("Ana@example.org", "x")
    with pytest.raises(IntegrityError), transaction.atomic():
        User.objects.filter(email="ana@example.org").update(email="Ana@example.org")
    other = User(email="Ana@example.org", password="x")
    with pytest.raises(ValidationError, match="already exists"):
        other.full_clean()


def test_a_token_has_scopes_a_project_and_an_end(world: World, browser: Browser) -> None:
    made = browser.send("post", "tokens", {"name": "ci", "scopes": ["jobs:read"], "project": "vision"}).json()
    assert (made["scopes"], made["project"]) == (["jobs:read"], "vision")
    api = Api(token=made["secret"])
    assert api.get("jobs").status == 200
    assert api.post("jobs", {"command": "x", "project": "vision", "total_steps": 1}).status == 403
    listed = browser.send("get", "tokens").json()["results"][0]
    assert listed["last_used_at"]
    assert listed["last_used_address"] == "127.0.0.1"


def test_a_bound_token_reaches_what_is_below_and_nothing_else(world: World, browser: Browser) -> None:
    Project.objects.create(key="faces", name="Faces", parent=world.project)
    other = Project.objects.create(key="other", name="Other")
    Membership.objects.create(project=other, user=world.user)
    secret = browser.send("post", "tokens", {"name": "ci", "project": "vision"}).json()["secret"]
    assert [p["key"] for p in Api(token=secret).get("projects").json["results"]] == ["vision", "faces"]
    assert Api(token=secret).get("live/project:other").status == 404


@pytest.mark.parametrize(
    ("wish", "field"),
    [
        ({"scopes": []}, "scopes"),
        ({"scopes": ["root"]}, "scopes.0"),
        ({"project": "hidden"}, "project"),
        ({"expires_in_days": 367}, "expires_in_days"),
        ({"expires_in_days": None}, "expires_in_days"),
    ],
)
def test_a_wrong_wish_names_the_field(world: World, browser: Browser, wish: dict[str, Any], field: str) -> None:
    Project.objects.create(key="hidden", name="Hidden")
    answer = browser.send("post", "tokens", {"name": "ci"} | wish)
    assert answer.status_code == 400
    assert [error["field"] for error in answer.json()["errors"]] == [field]


def test_rotation_overlaps_and_keeps_the_rights(world: World, browser: Browser) -> None:
    wish = {"name": "ci", "scopes": ["jobs:read"], "project": "vision", "expires_in_days": 30}
    old = browser.send("post", "tokens", wish).json()
    new = browser.send("post", f"tokens/{old['id']}/rotate", {}).json()
    assert (new["scopes"], new["project"], new["name"]) == (["jobs:read"], "vision", "ci")
    assert Api(token=old["secret"]).get("jobs").status == Api(token=new["secret"]).get("jobs").status == 200
    ends_at = ApiToken.objects.get(pk=old["id"]).expires_at
    assert ends_at is not None
    assert timedelta(hours=23) < ends_at - timezone.now() <= timedelta(hours=24)
    assert new["expires_at"] > old["expires_at"]
    assert browser.send("post", f"tokens/{new['id']}/rotate", {"overlap_hours": 0}).status_code == 201
    assert Api(token=new["secret"]).get("jobs").status == 401
    assert browser.send("post", f"tokens/{new['id']}/rotate", {}).status_code == 409


def test_what_was_rotated_is_not_rotated_again(browser: Browser) -> None:
    old = browser.send("post", "tokens", {"name": "ci"}).json()
    assert browser.send("post", f"tokens/{old['id']}/rotate", {}).status_code == 201
    again = browser.send("post", f"tokens/{old['id']}/rotate", {})
    assert again.status_code == 409
    assert "rotate the one that took its place" in again.json()["detail"]


def test_rotation_never_prolongs_the_old_token(world: World, browser: Browser) -> None:
    old = browser.send("post", "tokens", {"name": "ci"}).json()
    soon = timezone.now() + timedelta(minutes=5)
    ApiToken.objects.filter(pk=old["id"]).update(expires_at=soon)
    browser.send("post", f"tokens/{old['id']}/rotate", {"overlap_hours": 48})
    assert ApiToken.objects.get(pk=old["id"]).expires_at == soon


def test_a_token_cannot_rotate_itself(world: World) -> None:
    api = Api(world.user)
    assert api.post(f"tokens/{ApiToken.objects.get().pk}/rotate", {}).status == 403


def test_a_token_without_admin_revokes_itself_only(world: World, browser: Browser) -> None:
    mine = browser.send("post", "tokens", {"name": "a"}).json()
    other = browser.send("post", "tokens", {"name": "b"}).json()
    api = Api(token=mine["secret"])
    assert api.delete(f"tokens/{other['id']}").status == 403
    assert api.delete(f"tokens/{mine['id']}").status == 204
    assert api.get("jobs").status == 401
