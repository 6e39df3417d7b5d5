"""Projects, members, invitations and service accounts through the API, as every role."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.core import mail
from django.core.cache import cache
from django.test import Client
from django.utils import timezone

from accounts import slurm_names
from accounts.models import ApiToken, AuditEntry, Invitation, Membership, Project, User
from portal.api.schema import document
from portal.jobs.models import Job
from portal.snapshot.take import take_snapshot
from tests.portal.api.test_api_access import Browser
from tests.portal.api_calls import Api
from tests.portal.world import World

pytestmark = pytest.mark.django_db
ROLES = ["viewer", "member", "manager"]


@pytest.fixture
def world() -> Iterator[World]:
    cache.clear()
    yield World()
    cache.clear()


def person(name: str, project: str | None = None, role: str = "member", **more: Any) -> Api:
    user = User.objects.create_user(f"{name}@example.org", "correct horse battery", **more)
    if project:
        Membership.objects.create(user=user, project=Project.objects.get(key=project), role=role)
    return Api(user)


@pytest.fixture
def manager(world: World) -> Api:
    return person("max", "vision", "manager")


@pytest.fixture
def root(world: World) -> Api:
    return person("root", is_superuser=True, is_staff=True)


def user(name: str) -> User:
    return User.objects.get(email=f"{name}@example.org")


def test_administrators_create_at_the_top_and_managers_below(world: World, manager: Api, root: Api) -> None:
    assert manager.post("projects", {"key": "top", "name": "Top"}).status == 403
    assert root.post("projects", {"key": "top", "name": "Top"}).status == 201
    made = manager.post("projects", {"key": "faces", "name": "Faces", "parent": "vision"})
    assert made.status == 201
    assert (made.json["parent"], made.json["role"], made.json["inherited_from"]) == ("vision", "manager", "vision")
    assert manager.post("projects", {"key": "x", "name": "X", "parent": "top"}).fields == ["parent"]
    assert manager.post("projects", {"key": "faces", "name": "F", "parent": "vision"}).status == 409
    assert AuditEntry.objects.filter(action="project.create", target="faces").exists()


@pytest.mark.parametrize("role", ["viewer", "member"])
def test_lesser_roles_read_and_do_not_change(world: World, role: str) -> None:
    api = person("vic", "vision", role)
    assert api.get("projects/vision").json["role"] == role
    assert api.get("projects/vision/members").status == 200
    ana = world.user.pk
    for method, path, body in (
        ("POST", "projects", {"key": "faces", "name": "Faces", "parent": "vision"}),
        ("PATCH", "projects/vision", {"name": "V"}),
        ("POST", "projects/vision/archive", None),
        ("POST", "projects/vision/restore", None),
        ("POST", "projects/vision/members", {"email": "ana@example.org", "role": "viewer"}),
        ("PATCH", f"projects/vision/members/{ana}", {"role": "viewer"}),
        ("DELETE", f"projects/vision/members/{ana}", None),
        ("GET", "projects/vision/invitations", None),
        ("POST", "projects/vision/invitations", {"email": "new@example.org"}),
        ("DELETE", "projects/vision/invitations/1", None),
        ("GET", "projects/vision/service-accounts", None),
        ("POST", "projects/vision/service-accounts", {"name": "ci"}),
        ("PATCH", "projects/vision/service-accounts/1", {"role": "viewer"}),
        ("GET", "projects/vision/service-accounts/1/tokens", None),
        ("POST", "projects/vision/service-accounts/1/tokens", {"name": "t"}),
    ):
        assert api.request(method, path, body).status == 403, path
    stranger = person("eve")
    for method, path in (("GET", ""), ("POST", "/archive"), ("GET", "/members"), ("GET", "/invitations")):
        assert stranger.request(method, f"projects/vision{path}").status == 404
        assert stranger.request(method, f"projects/nothing{path}").status == 404


def test_roles_show_where_they_come_from(world: World, manager: Api) -> None:
    manager.post("projects", {"key": "faces", "name": "Faces", "parent": "vision"})
    manager.patch("projects/vision/members/" + str(world.user.pk), {"role": "viewer"})
    manager.post("projects/faces/members", {"email": "ANA@example.org", "role": "member"})
    members = {m["user"]["email"]: m for m in manager.get("projects/faces/members").json["results"]}
    assert (members["max@example.org"]["role"], members["max@example.org"]["inherited_from"]) == ("manager", "vision")
    assert (members["ana@example.org"]["role"], members["ana@example.org"]["inherited_from"]) == ("member", None)
    assert manager.delete(f"projects/faces/members/{user('max').pk}").status == 409
    assert manager.delete(f"projects/faces/members/{world.user.pk}").status == 204
    assert Api(world.user).get("projects/faces").json["role"] == "viewer"
    assert manager.post("projects/faces/members", {"email": "nobody@example.org"}).fields == ["email"]


def test_members_are_paged(world: World, manager: Api) -> None:
    first = manager.get("projects/vision/members?limit=1").json
    second = manager.get(first["next"].partition("/api/v1/")[2]).json
    emails = [m["user"]["email"] for m in first["results"] + second["results"]]
    assert sorted(emails) == ["ana@example.org", "max@example.org"]


def test_moving_takes_managers_of_both_places(world: World, manager: Api, root: Api) -> None:
    Project.objects.create(key="lab", name="Lab")
    manager.post("projects", {"key": "faces", "name": "Faces", "parent": "vision"})
    team = person("tea", "faces", "manager")
    Membership.objects.create(user=user("tea"), project=Project.objects.get(key="lab"), role="manager")
    assert team.patch("projects/faces", {"parent": "lab"}).status == 403
    assert manager.patch("projects/faces", {"parent": None}).status == 403
    assert root.patch("projects/vision", {"parent": "faces"}).fields == ["parent"]
    assert root.patch("projects/faces", {"parent": "lab"}).json["parent"] == "lab"
    assert manager.get("projects/faces").status == 404
    assert root.patch("projects/faces", {"parent": None, "name": "Gesichter"}).json["name"] == "Gesichter"
    assert AuditEntry.objects.filter(action="project.move").count() == 2


def test_archiving_waits_for_jobs_and_stops_submissions_below(world: World, manager: Api) -> None:
    manager.post("projects", {"key": "faces", "name": "Faces", "parent": "vision"})
    job = world.submit()
    assert manager.post("projects/vision/archive").status == 409
    manager.post(f"jobs/{job.number}/cancel")
    assert manager.post("projects/vision/archive").json["archived_at"]
    wish = {"command": "x", "project": "faces", "total_steps": 1}
    assert manager.post("jobs", wish).status in (400, 403, 404)
    assert manager.get(f"jobs/{job.number}").status == 200
    assert "is archived" in manager.patch(f"jobs/{job.number}", {"name": "again"}).json["detail"]
    assert manager.post("projects/faces/restore").status == 409
    assert manager.post("projects/vision/restore").json["archived_at"] is None
    assert manager.post("jobs", wish).status == 201


def test_a_service_account_works_with_tokens_in_its_project_only(world: World, manager: Api) -> None:
    Project.objects.create(key="other", name="Other")
    made = manager.post("projects/vision/service-accounts", {"name": "ci"}).json
    assert manager.post("projects/vision/service-accounts", {"name": "ci"}).status == 409
    wish = {"name": "pipeline", "expires_in_days": 30}
    token = manager.post(f"projects/vision/service-accounts/{made['id']}/tokens", wish).json
    robot = Api(token=token["secret"])
    assert token["project"] == "vision"
    assert [p["key"] for p in robot.get("projects").json["results"]] == ["vision"]
    job = robot.post("jobs", {"command": "x", "project": "vision", "total_steps": 1}).json
    assert job["owner"]["email"] == "ci@vision.service.invalid"
    account = User.objects.get(pk=made["id"])
    assert not account.has_usable_password()
    assert manager.get(f"projects/vision/service-accounts/{made['id']}/tokens").json["results"][0]["name"] == "pipeline"
    assert manager.get("projects/vision/service-accounts").json["results"][0]["tokens"] == 1
    changed = manager.patch(f"projects/vision/service-accounts/{made['id']}", {"is_active": False}).json
    assert (changed["is_active"], changed["tokens"]) == (False, 0)
    assert robot.get("jobs").status == 401
    assert Job.objects.get(number=job["number"]).project.key == "vision"
    assert manager.post(f"projects/vision/service-accounts/{made['id']}/tokens", wish).status == 409
    assert (
        manager.patch(f"projects/vision/service-accounts/{made['id']}", {"is_active": True, "role": "viewer"}).json[
            "role"
        ]
        == "viewer"
    )
    assert robot.get("jobs").status == 401


def test_a_service_account_is_nobody_elses(world: World, manager: Api, root: Api) -> None:
    made = manager.post("projects/vision/service-accounts", {"name": "ci"}).json
    Project.objects.create(key="other", name="Other")
    Membership.objects.create(user=user("max"), project=Project.objects.get(key="other"), role="manager")
    assert manager.post("projects/other/members", {"email": made["email"]}).fields == ["email"]
    assert manager.get(f"projects/other/service-accounts/{made['id']}/tokens").status == 404
    assert manager.delete(f"projects/vision/members/{made['id']}").status == 409
    assert root.patch(f"people/{made['id']}", {"is_admin": True}).status == 409
    browser = Browser()
    assert browser.send("post", "session", {"email": made["email"], "password": "!"}).status_code == 401


def test_a_token_makes_no_token_wider_than_itself(world: World, manager: Api) -> None:
    account = manager.post("projects/vision/service-accounts", {"name": "ci"}).json
    path = f"projects/vision/service-accounts/{account['id']}/tokens"
    ApiToken.objects.filter(user=user("max")).update(
        scopes=["admin", "jobs:read"], expires_at=timezone.now() + timedelta(days=10)
    )
    assert manager.post(path, {"name": "t", "expires_in_days": 5}).status == 403
    assert manager.post(path, {"name": "t", "scopes": ["jobs:read"], "expires_in_days": 11}).status == 403
    assert manager.post(path, {"name": "t", "scopes": ["jobs:read"], "expires_in_days": 5}).status == 201
    usual = manager.post(path, {"name": "t", "scopes": ["jobs:read"]})
    assert (usual.status, usual.json["expires_at"] < (timezone.now() + timedelta(days=10)).isoformat()) == (201, True)


def invite(manager: Api, **wish: Any) -> dict[str, Any]:
    answer = manager.post("projects/vision/invitations", {"email": "new@example.org", "role": "viewer"} | wish)
    assert answer.status == 201
    return dict(answer.json)


def secret_of(invitation: dict[str, Any]) -> str:
    found = re.fullmatch(r"http://testserver/invitation#(.{43})", invitation["link"])
    assert found
    return found[1]


def test_an_invitation_makes_an_account_once(world: World, manager: Api) -> None:
    invitation = invite(manager)
    secret = secret_of(invitation)
    assert secret not in json.dumps(list(Invitation.objects.values()), default=str)
    assert secret not in manager.get("projects/vision/invitations").text
    browser = Browser()
    seen = browser.send("post", "invitations/look", {"secret": secret}).json()
    assert (seen["email"], seen["role"], seen["project_name"]) == ("new@example.org", "viewer", "Vision")
    weak = browser.send("post", "invitations/accept", {"secret": secret, "name": "New", "password": "12345"})
    assert weak.status_code == 400
    taken = {"secret": secret, "name": "New", "password": "correct horse battery"}
    assert browser.send("post", "invitations/accept", taken).json() == {
        "project": "vision", "role": "viewer", "email": "new@example.org",
    }  # fmt: skip
    assert browser.send("get", "session").json()["user"]["email"] == "new@example.org"
    assert Browser().send("post", "invitations/accept", taken).status_code == 404
    assert manager.get("projects/vision/invitations").json["results"][0]["accepted_at"]
    assert not mail.outbox


def test_somebody_with_an_account_joins_signed_in(world: World, manager: Api) -> None:
    person("new")
    secret = secret_of(invite(manager))
    browser = Browser()
    assert browser.send("post", "invitations/accept", {"secret": secret}).status_code == 409
    browser.send("post", "session", {"email": "ana@example.org", "password": "correct horse battery"})
    assert browser.send("post", "invitations/accept", {"secret": secret}).status_code == 409
    browser.send("post", "session", {"email": "new@example.org", "password": "correct horse battery"})
    assert browser.send("post", "invitations/accept", {"secret": secret}).status_code == 200
    assert Membership.objects.get(user=user("new")).role == "viewer"


@pytest.mark.parametrize("how", ["revoked", "expired", "replaced", "inviter gone", "made up"])
def test_invitations_end(world: World, manager: Api, how: str) -> None:
    invitation = invite(manager)
    secret = secret_of(invitation)
    if how == "revoked":
        assert manager.delete(f"projects/vision/invitations/{invitation['id']}").status == 204
    elif how == "expired":
        Invitation.objects.update(expires_at=timezone.now())
    elif how == "replaced":
        invite(manager)
    elif how == "inviter gone":
        Membership.objects.filter(user=user("max")).delete()
    else:
        secret = "x" * 43
    body = {"secret": secret, "password": "correct horse battery"}
    refused = Browser().send("post", "invitations/accept", body)
    assert refused.status_code == 404
    assert Browser().send("post", "invitations/look", {"secret": secret}).status_code == 404
    assert not User.objects.filter(email="new@example.org").exists()


def test_many_may_join_from_one_address(world: World, manager: Api) -> None:
    """A whole team behind one address, in a minute."""
    for n in range(30):
        secret = secret_of(invite(manager, email=f"p{n}@example.org"))
        assert Browser().send("post", "invitations/look", {"secret": secret}).status_code == 200
        body = {"secret": secret, "password": "correct horse battery"}
        assert Browser().send("post", "invitations/accept", body).status_code == 200


def test_an_invitation_is_mailed_where_mail_is_set_up(world: World, manager: Api, settings: Any) -> None:
    settings.EVENKEEL_EMAIL_URL = "smtp://mail.example.org"
    invitation = invite(manager)
    assert (invitation["mailed"], invitation["link"]) == (True, None)
    assert "http://testserver/invitation#" in mail.outbox[0].body
    assert mail.outbox[0].to == ["new@example.org"]


def test_the_example_of_accepting_is_one_that_is_accepted(world: World, manager: Api) -> None:
    operation = document()["paths"]["/api/v1/invitations/accept"]["post"]
    example = operation["requestBody"]["content"]["application/json"]["examples"]["Example"]["value"]
    assert len(example["secret"]) == len(secret_of(invite(manager)))
    Invitation.objects.update(digest=hashlib.sha256(example["secret"].encode()).hexdigest())
    taken = Browser().send("post", "invitations/accept", example)
    assert (taken.status_code, taken.json()["email"]) == (200, "new@example.org")
    assert User.objects.get(email="new@example.org").check_password(example["password"])


@pytest.mark.parametrize(
    ("path", "method"), [("invitations/accept", "post"), ("session", "post"), ("session", "delete")]
)
def test_what_needs_the_csrf_token_without_a_session_says_so(path: str, method: str) -> None:
    operation = document()["paths"][f"/api/v1/{path}"][method]
    headers = {one["name"]: one.get("required", False) for one in operation["parameters"] if one["in"] == "header"}
    assert headers["X-CSRFToken"] is True
    assert "security" not in operation
    if path == "invitations/accept":
        assert "Needs no sign-in, but always the CSRF token" in operation["description"]


def test_accepting_needs_the_csrf_token(world: World, manager: Api) -> None:
    client = Client(enforce_csrf_checks=True)
    body = json.dumps({"secret": secret_of(invite(manager)), "password": "correct horse battery"})
    assert client.post("/api/v1/invitations/accept", body, content_type="application/json").status_code == 403


def test_a_project_s_weight_is_set_from_above_and_its_rule_by_itself(world: World, manager: Api, root: Api) -> None:
    assert manager.post("projects", {"key": "faces", "name": "Faces", "parent": "vision"}).status == 201
    below = person("fay", "faces", "manager")
    assert below.patch("projects/faces", {"share_weight": 9}).status == 403
    assert below.patch("projects/faces", {"inner_rule": "fifo"}).json["inner_rule"] == "fifo"
    assert manager.patch("projects/faces", {"share_weight": 2.5}).json["share_weight"] == 2.5
    assert manager.patch("projects/vision", {"share_weight": 2}).status == 403
    assert root.patch("projects/vision", {"share_weight": 2}).status == 200
    assert manager.patch("projects/faces", {"share_weight": 0}).status == 400
    assert AuditEntry.objects.filter(action="project.share", target="faces").count() == 2


def test_a_project_s_priority_is_set_by_administrators(world: World, manager: Api, root: Api) -> None:
    assert manager.patch("projects/vision", {"priority": 5}).status == 403
    assert manager.patch("projects/vision", {"priority": None, "inner_rule": "fifo"}).status == 200  # as it was
    assert root.patch("projects/vision", {"priority": 5}).json["priority"] == 5
    assert root.patch("projects/vision", {"priority": -1}).fields == ["priority"]
    assert take_snapshot(world.cluster, timezone.now()).snapshot.entities["vision"].priority == 5
    assert root.patch("projects/vision", {"priority": None}).json["priority"] is None


def test_what_a_project_is_in_slurm_is_set_by_administrators_and_inherited(
    world: World, manager: Api, root: Api
) -> None:
    assert manager.post("projects", {"key": "faces", "name": "Faces", "parent": "vision"}).status == 201
    assert manager.patch("projects/faces", {"slurm": {"account": "x"}}).status == 403
    assert root.patch("projects/vision", {"slurm": {"account": "vision", "partition": "a,b"}}).status == 200
    said = root.patch("projects/faces", {"slurm": {"qos": "high", "partition": "c"}}).json
    assert said["slurm"] == {"account": None, "qos": "high", "partition": "c", "wckey": None, "reservation": None}
    assert (said["slurm_above"]["account"], said["slurm_above"]["partition"]) == ("vision", "a,b")
    faces = Project.objects.get(key="faces")
    assert slurm_names.effective(faces) == {"account": "vision", "qos": "high", "partition": "c"}
    root.patch("projects/faces", {"slurm": {"partition": None}})
    assert slurm_names.effective(faces)["partition"] == "a,b"
    for bad in ({"account": "--uid=0"}, {"qos": "a b"}, {"partition": "a,,b"}, {"wckey": "*"}, {"account": "a,b"}):
        assert root.patch("projects/faces", {"slurm": bad}).fields == [f"slurm.{next(iter(bad))}"]
    assert root.patch("projects/faces", {"slurm": {"uid": "0"}}).status == 400
    assert AuditEntry.objects.filter(action="project.slurm", target="faces").count() == 2


def test_rounds_see_the_tree_with_its_weights(world: World) -> None:
    Project.objects.create(key="faces", name="Faces", parent=world.project, share_weight=3, inner_rule="fifo")
    world.submit()
    entity = take_snapshot(world.cluster, timezone.now()).snapshot.entities["faces"]
    assert (entity.parent, entity.weight, entity.inner) == ("vision", 3.0, "fifo")
