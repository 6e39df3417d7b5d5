"""Secrets: set by managers, used by members, read by nobody."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection

from accounts.models import AuditEntry, Membership, User
from accounts.tokens import create_token
from portal.execution.launch_request import launch_request
from portal.material import encryption, secrets
from portal.material.models import Secret
from scheduling.errors import ExecutorError
from tests.portal.api_calls import Answer, Api
from tests.portal.world import World

pytestmark = pytest.mark.django_db
VALUE = "correct-horse-battery"
JOB: dict[str, Any] = {"command": "train", "project": "vision", "total_steps": 5}


@pytest.fixture
def world(settings: Any, tmp_path: Any) -> World:
    settings.EVENKEEL_DATA = tmp_path
    made = World()
    Membership.objects.update(role="manager")
    return made


def put(api: Api, name: str = "API_KEY", **body: Any) -> Answer:
    return api.put(f"projects/vision/secrets/{name}", {"value": VALUE} | body)


def test_a_value_goes_in_and_never_comes_out(api: Api, world: World) -> None:
    made = put(api, description="for the hub")
    assert made.status == 201
    assert put(api, value="another-value").status == 200
    assert put(api).status == 200
    listed = api.get("projects/vision/secrets")
    (row,) = listed.json["results"]
    assert (row["name"], row["description"], row["changed_by"]) == ("API_KEY", "for the hub", str(world.user))
    stored = json.dumps([str(value) for value in Secret.objects.values()] + list(AuditEntry.objects.values("detail")))
    for said in (made.text, listed.text, stored):
        assert VALUE not in said
    actions = AuditEntry.objects.filter(action__startswith="secret.").order_by("id").values_list("action", flat=True)
    assert list(actions) == ["secret.create", "secret.change", "secret.change"]
    assert secrets.value_of(world.project, "API_KEY") == VALUE
    with connection.cursor() as cursor:
        cursor.execute("SELECT ciphertext FROM material_secret")
        assert VALUE not in cursor.fetchone()[0]


@pytest.mark.parametrize(
    ("role", "reads", "writes"), [("viewer", 403, 403), ("member", 200, 403), ("manager", 200, 200)]
)
def test_what_each_role_may(world: World, api: Api, role: str, reads: int, writes: int) -> None:
    put(api)
    Membership.objects.update(role=role)
    assert api.get("projects/vision/secrets").status == reads
    assert put(api).status == writes
    assert api.delete("projects/vision/secrets/API_KEY").status == (204 if writes == 200 else 403)
    submitter = Api(token=create_token(user=world.user, name="ci", scopes=("jobs:read", "jobs:write"))[1])
    assert submitter.get("projects/vision/secrets").status == reads
    assert put(submitter).status == submitter.delete("projects/vision/secrets/API_KEY").status == 403
    stranger = Api(User.objects.create_user("eve@example.org", "x"))
    assert stranger.get("projects/vision/secrets").status == 404
    assert put(stranger).status == 404
    assert stranger.delete("projects/vision/secrets/API_KEY").status == 404


@pytest.mark.parametrize(
    ("name", "body", "field"),
    [
        ("1x", {}, "secret"),
        ("a" * 65, {}, "secret"),
        ("A", {"value": "short"}, "value"),
        ("A", {"value": "x" * 50_000}, "value"),
        ("A", {"value": "with\0null"}, "value"),
        ("A", {"value": None}, "value"),
        ("A", {"description": "a\x00"}, "description"),
    ],
)
def test_what_is_wrong_is_named(api: Api, name: str, body: dict[str, Any], field: str) -> None:
    answer = put(api, name, **body)
    assert (answer.status, answer.fields) == (400, [field])
    assert VALUE not in answer.text


@pytest.mark.parametrize(
    ("uses", "field"),
    [
        ([{"name": "NONE", "env": "X"}], "secrets.0.name"),
        ([{"name": "API_KEY"}], "secrets.0"),
        ([{"name": "API_KEY", "env": "X", "file": "x"}], "secrets.0"),
        ([{"name": "API_KEY", "env": "EVENKEEL_TOKEN"}], "secrets.0"),
        ([{"name": "API_KEY", "file": "../x"}], "secrets.0.file"),
        ([{"name": "API_KEY", "env": "X"}, {"name": "API_KEY", "env": "X"}], "secrets"),
    ],
)
def test_a_wrong_use_is_named(api: Api, uses: list[dict[str, str]], field: str) -> None:
    put(api)
    assert api.post("jobs", JOB | {"secrets": uses}).fields == [field]


def test_it_is_said_who_uses_a_secret_and_never_of_more_than_twenty_jobs(api: Api, world: World) -> None:
    for name in ("API_KEY", "GIT_TOKEN", "UNUSED"):
        put(api, name)
    code = {"git": "https://example.org/a.git", "ref": "main", "token_secret": "GIT_TOKEN"}
    jobs = [world.submit(code=code, secrets=[{"name": "API_KEY", "env": "KEY"}]).number]
    jobs += [world.submit(secrets=[{"name": "API_KEY", "env": "KEY"}]).number for _ in range(21)]
    api.post(f"jobs/{jobs[1]}/cancel")
    used = {row["name"]: row["used_by"] for row in api.get("projects/vision/secrets").json["results"]}
    assert used == {"API_KEY": [jobs[0], *jobs[2:21]], "GIT_TOKEN": [jobs[0]], "UNUSED": []}
    assert len(used["API_KEY"]) == secrets.MAX_USERS
    assert put(api, "GIT_TOKEN").json["used_by"] == [jobs[0]]


def test_a_launch_gets_the_values_and_says_what_is_gone(api: Api, world: World) -> None:
    put(api)
    job = world.submit(secrets=[{"name": "API_KEY", "env": "KEY"}, {"name": "API_KEY", "file": "key"}])
    assert api.get("projects/vision/secrets").json["results"][0]["used_by"] == [job.number]
    assert VALUE not in api.get(f"jobs/{job.number}").text
    world.round()
    request = launch_request(world.run(job), 1)
    assert [(s.env, s.file, s.value) for s in request.secrets] == [("KEY", None, VALUE), (None, "key", VALUE)]
    assert VALUE not in repr(request)
    api.delete("projects/vision/secrets/API_KEY")
    with pytest.raises(ExecutorError, match="no secret 'API_KEY' any more") as refusal:
        launch_request(world.run(job), 1)
    assert refusal.value.permanent


def test_rotation_leaves_every_value_readable_under_a_new_key(api: Api, world: World) -> None:
    put(api)
    path = encryption.key_file()
    assert path.stat().st_mode & 0o777 == 0o600
    before, old = Secret.objects.get().ciphertext, path.read_text().split()
    for _ in range(3):
        call_command("rotate_secrets", verbosity=0)
    assert Secret.objects.get().ciphertext != before
    assert secrets.value_of(world.project, "API_KEY") == VALUE
    assert len(path.read_text().split()) == encryption.KEPT_KEYS
    path.write_text(old[0])
    with pytest.raises(encryption.CannotDecrypt):
        encryption.decrypt(Secret.objects.get().ciphertext)


def test_a_refused_value_is_not_repeated(api: Api) -> None:
    for wrong in ("ab1", 12_345_678, ["k3y-k3y"]):
        refused = put(api, value=wrong)
        assert refused.status == 400
        assert "ab1" not in refused.text
        assert "12345678" not in refused.text
        assert "k3y" not in refused.text
