"""ETag and If-Match: nobody undoes what somebody else did meanwhile without seeing it."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from django.db import connection

from accounts.models import User
from tests.portal.api_calls import Api
from tests.portal.world import World

CHOICE = {"name": "static_partition", "parameters": {}}
BACK = {"name": "f_scheduling", "parameters": {}}


@pytest.fixture
def api(db: None) -> Api:
    World()
    return Api(User.objects.create_superuser("root@example.org", "x"))


def test_a_change_of_what_was_read_is_taken(api: Api) -> None:
    etag = api.get("policy").headers["ETag"]
    assert api.put("policy", CHOICE, If_Match=etag).status == 200
    assert api.get("policy").headers["ETag"] != etag


def test_a_change_of_what_has_changed_is_refused(api: Api) -> None:
    etag = api.get("policy").headers["ETag"]
    api.put("policy", CHOICE)
    refused = api.put("policy", BACK, If_Match=etag)
    assert (refused.status, refused.json["title"]) == (412, "Changed meanwhile")
    assert api.get("policy").json["name"] == "static_partition"


@pytest.mark.parametrize("given", ['"nonsense"', 'W/"x"', "x"])
def test_a_tag_that_is_none_is_refused(api: Api, given: str) -> None:
    assert api.put("policy", CHOICE, If_Match=given).status == 412


def test_any_of_several_tags_or_none_at_all_will_do(api: Api) -> None:
    etag = api.get("policy").headers["ETag"]
    assert api.put("policy", CHOICE, If_Match=f'"other", {etag}').status == 200
    assert api.put("policy", BACK, If_Match="*").status == 200
    assert api.put("policy", CHOICE).status == 200


def test_what_has_not_changed_is_not_sent_again(api: Api) -> None:
    for path in ("policy", "policies", "model-types", "schema"):
        first = api.client.get(f"/api/v1/{path}", headers=api.headers)
        again = api.client.get(f"/api/v1/{path}", headers=api.headers | {"If-None-Match": first["ETag"]})
        assert (again.status_code, again.content) == (304, b""), path


def test_what_a_project_uses_is_nobodys_edit(api: Api) -> None:
    before = api.get("projects/vision")
    api.post("jobs", {"command": "x", "project": "vision", "total_steps": 1})
    after = api.get("projects/vision")
    assert after.json["jobs_queued"] == before.json["jobs_queued"] + 1
    assert before.headers["ETag"] != after.headers["ETag"]
    assert api.request("PATCH", "projects/vision", {"name": "One"}, If_Match=before.headers["ETag"]).status == 200
    assert api.request("PATCH", "projects/vision", {"name": "Two"}, If_Match=after.headers["ETag"]).status == 412


@pytest.mark.parametrize(
    ("path", "method", "body"),
    [
        ("projects/vision/members/{member}", "PATCH", {"role": "viewer"}),
        ("projects/vision/service-accounts/{account}", "PATCH", {"role": "viewer"}),
        ("projects/vision/secrets/TOKEN", "PUT", {"value": "the new value"}),
    ],
)
def test_roles_accounts_and_secrets_have_tags_too(api: Api, path: str, method: str, body: dict[str, str]) -> None:
    made = api.post("projects/vision/service-accounts", {"name": "ci", "role": "member"}).json
    assert api.put("projects/vision/secrets/TOKEN", {"value": "the old value"}).status == 201
    path = path.format(member=User.objects.get(email="ana@example.org").pk, account=made["id"])
    tag = api.get(path).headers["ETag"]
    assert api.request(method, path, body, If_Match=tag).status == 200
    assert api.request(method, path, body, If_Match=tag).status == 412


@pytest.mark.django_db(transaction=True)
def test_of_two_changes_at_once_one_is_refused() -> None:
    World()
    api = Api(User.objects.create_superuser("root@example.org", "x"))
    etag = api.get("policy").headers["ETag"]
    assert _at_once(api, "PUT", [("policy", CHOICE, etag)] * 4) == [200, 412, 412, 412]


@pytest.mark.django_db(transaction=True)
def test_who_read_at_different_moments_wait_for_each_other_too() -> None:
    """What changes by itself is in the tag as well, but not in what is compared: the tags differ, the version not."""
    World()
    root = User.objects.create_superuser("root@example.org", "x")
    api = Api(root)
    tags = []
    for _ in range(4):
        tags.append(api.get("projects/vision").headers["ETag"])
        api.post("jobs", {"command": "x", "project": "vision", "total_steps": 1})
    assert len(set(tags)) == 4
    changes = [("projects/vision", {"name": f"Name {n}"}, tag) for n, tag in enumerate(tags)]
    assert _at_once(api, "PATCH", changes) == [200, 412, 412, 412]


def _at_once(api: Api, method: str, changes: list[tuple[str, Any, str]]) -> list[int]:
    """Their statuses, sorted."""
    statuses: list[int] = []
    together = threading.Barrier(len(changes))
    token = api.headers["Authorization"].removeprefix("Bearer ")

    def change(path: str, body: Any, etag: str) -> None:
        together.wait(10)
        try:
            statuses.append(Api(token=token).request(method, path, body, If_Match=etag).status)
        finally:
            connection.close()

    threads = [threading.Thread(target=change, args=values) for values in changes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    return sorted(statuses)
