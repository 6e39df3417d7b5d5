"""Signing in, tokens, and who may do what."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from django.core.cache import cache
from django.test import Client
from django.utils import timezone

from accounts.models import ApiToken, AuditEntry, Membership, Project, User
from accounts.tokens import create_token
from portal.api.people import sessions
from tests.portal.api_calls import Api, check_documented
from tests.portal.world import World

pytestmark = pytest.mark.django_db
SESSION = "/api/v1/session"
GOOD = {"email": "ana@example.org", "password": "correct horse battery"}


@pytest.fixture
def world() -> World:
    cache.clear()
    return World()


class Browser:
    """A client with cookies that has to say the CSRF token, as a browser does."""

    def __init__(self) -> None:
        self.client = Client(enforce_csrf_checks=True)
        self.send("get", "session")

    def send(self, method: str, path: str, body: Any = None, csrf: bool = True) -> Any:
        headers = {}
        if csrf and "csrftoken" in self.client.cookies:
            headers["X-CSRFToken"] = self.client.cookies["csrftoken"].value
        data = json.dumps(body) if body is not None else ""
        response = self.client.generic(
            method.upper(), f"/api/v1/{path}", data, content_type="application/json", headers=headers
        )
        check_documented(method, f"/api/v1/{path}", response)
        return response


def test_anybody_learns_where_they_are(world: World) -> None:
    response = Client().get(SESSION)
    assert response.json()["user"] is None
    assert response.json()["cluster"] == {"name": "test", "nodes": 1, "gpus": 4}
    assert response.cookies["csrftoken"].value


def test_signing_in_and_out(world: World) -> None:
    browser = Browser()
    signed_in = browser.send("post", "session", GOOD)
    assert signed_in.json()["user"]["email"] == "ana@example.org"
    assert signed_in.json()["projects"] == [{"key": "vision", "name": "Vision", "role": "member"}]
    assert browser.client.cookies["sessionid"]["httponly"]
    assert browser.send("get", "jobs").status_code == 200
    assert browser.send("delete", "session").status_code == 204
    assert browser.send("get", "jobs").status_code == 401


def test_wrong_passwords_and_unknown_people_get_one_answer(world: World) -> None:
    User.objects.create_user("gone@example.org", "correct horse battery", is_active=False)
    browser = Browser()
    answers = [
        browser.send("post", "session", GOOD | change)
        for change in ({"password": "wrong"}, {"email": "nobody@example.org"}, {"email": "gone@example.org"})
    ]
    assert {a.status_code for a in answers} == {401}
    assert len({a.content for a in answers}) == 1


def test_signing_in_needs_the_csrf_token(world: World) -> None:
    response = Browser().send("post", "session", GOOD, csrf=False)
    assert response.status_code == 403
    assert response["Content-Type"] == "application/problem+json"


def test_a_session_needs_the_csrf_token_to_change_things(world: World) -> None:
    browser = Browser()
    browser.send("post", "session", GOOD)
    wish = {"command": "x", "project": "vision", "total_steps": 1}
    assert browser.send("post", "jobs", wish, csrf=False).status_code == 403
    assert browser.send("post", "jobs", wish).status_code == 201


def test_guessing_is_slowed_down_by_account(world: World) -> None:
    browser = Browser()
    for _ in range(10):
        assert browser.send("post", "session", GOOD | {"password": "wrong"}).status_code == 401
    refused = browser.send("post", "session", GOOD)
    assert refused.status_code == 429
    assert int(refused["Retry-After"]) > 0
    assert browser.send("post", "session", GOOD | {"email": "else@example.org"}).status_code == 401


def test_a_right_password_clears_the_count(world: World) -> None:
    browser = Browser()
    for _ in range(4):
        for _ in range(4):
            browser.send("post", "session", GOOD | {"password": "wrong"})
        assert browser.send("post", "session", GOOD).status_code == 200


@pytest.mark.parametrize("body", [{}, {"email": "a"}, {"email": ["a"], "password": "b"}, [], {**GOOD, "extra": 1}])
def test_malformed_credentials_name_the_field(world: World, body: Any) -> None:
    assert Browser().send("post", "session", body).status_code == 400


def test_without_sign_in_nothing_is_said(world: World) -> None:
    job = world.submit()
    for path in ("jobs", f"jobs/{job.number}", f"jobs/{job.number}/logs", "live/cluster", "nodes", "policy", "tokens"):
        refused = Api().get(path)
        assert refused.status == 401
        assert "Bearer" in refused.headers["WWW-Authenticate"]


def test_a_token_is_shown_once_and_works_until_revoked(world: World) -> None:
    browser = Browser()
    browser.send("post", "session", GOOD)
    made = browser.send("post", "tokens", {"name": "ci", "expires_in_days": 5}).json()
    api = Api(token=made["secret"])
    assert api.get("jobs").status == 200
    listed = api.get("tokens")
    assert made["secret"] not in listed.text
    assert listed.json["results"][0]["prefix"] == made["prefix"]
    assert ApiToken.objects.get().digest not in listed.text
    assert api.delete(f"tokens/{made['id']}").status == 204
    assert api.get("jobs").status == 401
    actions = AuditEntry.objects.exclude(action="session.create").values_list("action", flat=True)
    assert list(actions) == ["access.denied", "token.revoke", "token.create"]


def test_a_token_cannot_make_tokens(world: World) -> None:
    assert Api(world.user).post("tokens", {"name": "more"}).status == 403


def test_expired_and_damaged_tokens_are_refused(world: World) -> None:
    token, text = create_token(user=world.user, name="ci")
    for damaged in (text + "x", text[:-1], "ek_", "ek_a_b", "ek__", "ek_\x00_x", "nonsense"):
        assert Api(token=damaged).get("jobs").status == 401
    ApiToken.objects.filter(pk=token.pk).update(expires_at=timezone.now() - timedelta(seconds=1))
    assert Api(token=text).get("jobs").status == 401


def test_the_tokens_of_people_who_left_are_refused(world: World) -> None:
    api = Api(world.user)
    User.objects.update(is_active=False)
    assert api.get("jobs").status == 401


def test_tokens_of_others_cannot_be_revoked(world: World) -> None:
    token, _ = create_token(user=world.user, name="mine")
    other = Api(User.objects.create_user("eve@example.org", "x"))
    assert other.delete(f"tokens/{token.pk}").status == 404
    assert other.delete("tokens/99999999999999999999").status == 404
    token.refresh_from_db()
    assert token.revoked_at is None


@pytest.mark.parametrize("wish", [{}, {"name": ""}, {"name": "a\x00"}, {"name": "a", "expires_in_days": 0}])
def test_a_wrong_token_wish_is_refused(world: World, wish: dict[str, Any]) -> None:
    browser = Browser()
    browser.send("post", "session", GOOD)
    assert browser.send("post", "tokens", wish).status_code == 400


def test_projects_show_role_quota_and_use(world: World) -> None:
    Membership.objects.update(role="manager")
    Project.objects.create(key="hidden", name="Hidden")
    world.train(world.submit())
    world.submit()
    (project,) = Api(world.user).get("projects").json["results"]
    assert project["role"] == "manager"
    assert (project["gpus_allocated"], project["jobs_running"], project["jobs_queued"]) == (4, 1, 1)


def test_projects_come_in_pages_and_the_session_says_when_it_leaves_some_out(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    below = Project.objects.create(key="detection", name="Detection", parent=world.project)
    Project.objects.filter(pk=below.pk).update(archived_at=timezone.now())
    api = Api(world.user)
    first = api.get("projects?limit=1").json
    assert [project["key"] for project in first["results"]] == ["vision"]
    second = api.get("projects?" + first["next"].partition("?")[2]).json
    assert [(project["key"], project["parent"]) for project in second["results"]] == [("detection", "vision")]
    assert second["next"] is None
    session = api.get("session").json
    assert ([project["key"] for project in session["projects"]], session["more_projects"]) == (
        ["vision", "detection"],
        False,
    )
    monkeypatch.setattr(sessions, "MOST_PROJECTS", 1)
    session = api.get("session").json
    assert ([project["key"] for project in session["projects"]], session["more_projects"]) == (["vision"], True)


def test_projects_cost_the_same_for_few_and_many(world: World, django_assert_max_num_queries: Any) -> None:
    api = Api(User.objects.create_superuser("root@example.org", "x"))
    api.get("projects")
    with django_assert_max_num_queries(12) as few:
        api.get("projects")
    for n in range(20):
        Project.objects.create(key=f"p{n}", name=f"P{n}")
    with django_assert_max_num_queries(12) as many:
        assert len(api.get("projects").json["results"]) == 21
    assert len(few) == len(many)
